/*
 * stream.c  gpuopt.Stream and gpuopt.Event, the stream objects of other libraries, and
 * functions of a device: synchronize, device_count, memory_info, empty_cache.
 * Order: handles, the current stream, shared helpers, Stream, Event, functions.
 */
#include "stream.h"

#include "backends.h"
#include "errors.h"
#include "module.h"
#include "options.h"
#include "retain.h"
#include "task.h"

#include <string.h>

typedef struct stream_object {
    PyObject_HEAD gpo_backend_id id;
    int device, priority;
    void *handle;
} stream_object;

typedef struct event_object {
    PyObject_HEAD gpo_backend_id id;
    int device;
    bool recorded;
    void *handle;
} event_object;

/* ---- handles ---- */

static bool
is_stream(PyObject *object)
{
    return Py_TYPE(object) == gpo_py.stream;
}

/* The attribute of a foreign object; NULL without an exception if it has none. */
static PyObject *
attribute(PyObject *object, const char *name)
{
    PyObject *value = PyObject_GetAttrString(object, name);
    if (!value && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
    }
    return value;
}

/* The handle in __cuda_stream__, (0, handle): a method, in older CuPy an attribute. */
static PyObject *
protocol_handle(PyObject *object)
{
    PyObject *answer = attribute(object, "__cuda_stream__");
    if (answer && PyCallable_Check(answer)) {
        PyObject *called = PyObject_CallFunctionObjArgs(answer, NULL);
        Py_DECREF(answer);
        answer = called;
    }
    if (!answer) {
        return NULL;
    }
    PyObject *handle = NULL;
    if (PyTuple_Check(answer) && PyTuple_Size(answer) == 2) {
        handle = Py_NewRef(PyTuple_GetItem(answer, 1));
    }
    else {
        PyErr_SetString(PyExc_TypeError, "__cuda_stream__ must give a pair of ints");
    }
    Py_DECREF(answer);
    return handle;
}

int
gpo_stream_handle(PyObject *object, const char *function, void **stream)
{
    *stream = NULL;
    if (!object || object == Py_None) {
        return 0;
    }
    if (is_stream(object)) {
        *stream = ((stream_object *)object)->handle;
        return 1;
    }
    PyObject *handle = PyLong_Check(object) && !PyBool_Check(object)
                           ? Py_NewRef(object)
                           : protocol_handle(object);
    if (!handle && !PyErr_Occurred()) {
        handle = attribute(object, "cuda_stream");
    }
    if (!handle && !PyErr_Occurred()) {
        handle = attribute(object, "ptr");
    }
    if (!handle) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_TypeError,
                         "%s() argument 'stream' must be an int or a stream, not %R",
                         function, (PyObject *)Py_TYPE(object));
        }
        return -1;
    }
    *stream = PyLong_Check(handle) ? PyLong_AsVoidPtr(handle) : NULL;
    if (!PyLong_Check(handle)) {
        PyErr_Format(PyExc_TypeError, "%s(): the handle of the stream is no int",
                     function);
    }
    Py_DECREF(handle);
    if (PyErr_Occurred()) {
        return -1;
    }
    if ((uintptr_t)*stream == 1) {
        *stream = NULL; /* the legacy default stream has two names */
    }
    return 1;
}

bool
gpo_stream_fits(PyObject *object, gpo_backend_id id, int device)
{
    if (!object || !is_stream(object)) {
        return true;
    }
    const stream_object *s = (stream_object *)object;
    if (s->id != id || s->device != device) {
        PyErr_Format(
            PyExc_ValueError, "the stream belongs to %s:%d, the arrays are on %s:%d",
            gpo_backend_names[s->id], s->device, gpo_backend_names[id], device);
        return false;
    }
    return true;
}

/* ---- the current stream of a thread ---- */

enum { DEPTH = 32 };

static _Thread_local struct {
    int count;
    PyObject *stream[DEPTH];
} entered;

PyObject *
gpo_stream_current(gpo_backend_id id, int device, void **stream)
{
    for (int i = entered.count - 1; i >= 0; i--) {
        const stream_object *s = (stream_object *)entered.stream[i];
        if (s->id == id && s->device == device) {
            *stream = s->handle;
            return entered.stream[i];
        }
    }
    return NULL;
}

/* ---- shared by the classes and functions ---- */

/* Reads device= and backend=, which must exist; false with an exception set. */
static bool
parse_place(const char *function, PyObject *device_object, PyObject *backend_object,
            gpo_backend_id *id, int *device)
{
    *id = GPO_CUDA;
    *device = 0;
    if (backend_object && backend_object != Py_None) {
        const int given = gpo_backend_from_name(backend_object);
        if (given < 0) {
            return false;
        }
        if (given == GPO_CPU) {
            PyErr_SetString(PyExc_ValueError,
                            "backend must be 'cuda' or 'sim' (got 'cpu')");
            return false;
        }
        *id = (gpo_backend_id)given;
    }
    if (device_object && device_object != Py_None) {
        int64_t number;
        if (!gpo_int_parse(device_object, function, "device", &number) ||
            !gpo_check_device(*id, number)) {
            return false;
        }
        *device = (int)number;
        return true;
    }
    return gpo_check_device(*id, *device);
}

typedef gpo_status (*handle_step)(gpo_call *call, void *handle);

static gpo_status
wait_for_stream(gpo_call *call, void *unused)
{
    (void)unused;
    return call->backend->wait(call);
}

/* Runs one step between begin and end, without the GIL; NULL with an exception set. */
static PyObject *
run_step(const char *name, gpo_backend_id id, int device, void *stream,
         handle_step step, void *handle)
{
    gpo_task task;
    const gpo_backend *backend = gpo_backend_get(id);
    gpo_task_init(&task, name, backend, device, stream);
    PyThreadState *thread = PyEval_SaveThread();
    gpo_status status = backend->begin(&task.call);
    if (!status) {
        status = step(&task.call, handle);
        backend->end(&task.call);
    }
    PyEval_RestoreThread(thread);
    if (status) {
        return gpo_raise(&task.call, status);
    }
    Py_RETURN_NONE;
}

/* ---- Stream ---- */

static PyObject *
stream_create(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"device", "backend", "priority", NULL};
    PyObject *device_object = NULL, *backend_object = NULL;
    int priority = 0, device;
    gpo_backend_id id;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O$Oi:Stream", names,
                                     &device_object, &backend_object, &priority) ||
        !parse_place("Stream", device_object, backend_object, &id, &device)) {
        return NULL;
    }
    gpo_task task;
    const gpo_backend *backend = gpo_backend_get(id);
    void *handle = NULL;
    gpo_task_init(&task, "Stream", backend, device, NULL);
    gpo_status status = backend->begin(&task.call);
    if (!status) {
        status = gpo_device_of(id)->stream_new(&task.call, priority, &handle);
        backend->end(&task.call);
    }
    if (status) {
        return gpo_raise(&task.call, status);
    }
    stream_object *self = PyObject_New(stream_object, type);
    if (self) {
        self->id = id;
        self->device = device;
        self->priority = priority;
        self->handle = handle;
    }
    return (PyObject *)self;
}

static void
stream_dealloc(stream_object *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    gpo_task task;
    const gpo_backend *backend = gpo_backend_get(self->id);
    gpo_task_init(&task, "Stream", backend, self->device, NULL);
    if (backend->begin && backend->begin(&task.call) == GPO_OK) {
        gpo_device_of(self->id)->stream_free(&task.call, self->handle);
        backend->end(&task.call);
    }
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyObject *
stream_synchronize(stream_object *self, PyObject *unused)
{
    (void)unused;
    return run_step("synchronize", self->id, self->device, self->handle,
                    wait_for_stream, NULL);
}

static PyObject *
stream_wait(stream_object *self, PyObject *object)
{
    if (Py_TYPE(object) != gpo_py.event) {
        return PyErr_Format(PyExc_TypeError, "wait() takes an Event, not %R",
                            (PyObject *)Py_TYPE(object));
    }
    event_object *event = (event_object *)object;
    if (event->id != self->id) {
        return PyErr_Format(PyExc_ValueError,
                            "the event is of '%s', the stream of '%s'",
                            gpo_backend_names[event->id], gpo_backend_names[self->id]);
    }
    return run_step("wait", self->id, self->device, self->handle,
                    gpo_device_of(self->id)->event_follow, event->handle);
}

static PyObject *
stream_protocol(stream_object *self, PyObject *unused)
{
    (void)unused;
    if (self->id != GPO_CUDA) {
        PyErr_SetString(PyExc_TypeError, "the stream is the simulator's, not CUDA's");
        return NULL;
    }
    return Py_BuildValue("(iN)", 0, PyLong_FromVoidPtr(self->handle));
}

static PyObject *
stream_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (entered.count == DEPTH) {
        return PyErr_Format(PyExc_RuntimeError, "more than %d streams are entered",
                            DEPTH);
    }
    entered.stream[entered.count++] = Py_NewRef(self);
    return Py_NewRef(self);
}

static PyObject *
stream_exit(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (entered.count == 0 || entered.stream[entered.count - 1] != self) {
        PyErr_SetString(PyExc_RuntimeError,
                        "the stream is not the one that this thread entered last");
        return NULL;
    }
    Py_DECREF(entered.stream[--entered.count]);
    Py_RETURN_NONE;
}

static PyObject *
stream_get_handle(stream_object *self, void *unused)
{
    (void)unused;
    return PyLong_FromVoidPtr(self->handle);
}

static PyObject *
stream_get_device(stream_object *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(self->device);
}

static PyObject *
stream_get_priority(stream_object *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(self->priority);
}

static PyObject *
stream_get_backend(stream_object *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(gpo_backend_names[self->id]);
}

static PyObject *
stream_repr(stream_object *self)
{
    return PyUnicode_FromFormat("<gpuopt.Stream %p on %s:%d>", self->handle,
                                gpo_backend_names[self->id], self->device);
}

PyDoc_STRVAR(
    stream_doc,
    "Stream(device=0, *, backend='cuda', priority=0)\n--\n\n"
    "A queue of work on one device.  It does not wait for the default stream.\n\n"
    "`with stream:` makes it the stream of calls on DeviceArrays in this thread\n"
    "that name none.  priority: the lower, the earlier the device serves it.");

static PyMethodDef stream_methods[] = {
    {"synchronize", (PyCFunction)stream_synchronize, METH_NOARGS,
     "synchronize($self, /)\n--\n\nWait until all work of the stream is done."},
    {"wait", (PyCFunction)stream_wait, METH_O,
     "wait($self, event, /)\n--\n\nLet later work of the stream wait for an event."},
    {"__cuda_stream__", (PyCFunction)stream_protocol, METH_NOARGS, NULL},
    {"__enter__", stream_enter, METH_NOARGS, NULL},
    {"__exit__", stream_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef stream_attributes[] = {
    {"handle", (getter)stream_get_handle, NULL, "The cudaStream_t, an int.", NULL},
    {"device", (getter)stream_get_device, NULL, "The number of its device.", NULL},
    {"backend", (getter)stream_get_backend, NULL, "'cuda' or 'sim'.", NULL},
    {"priority", (getter)stream_get_priority, NULL, "The lower, the earlier.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot stream_slots[] = {
    {Py_tp_doc, (void *)stream_doc},
    {Py_tp_new, (void *)stream_create},
    {Py_tp_dealloc, (void *)stream_dealloc},
    {Py_tp_repr, (void *)stream_repr},
    {Py_tp_methods, stream_methods},
    {Py_tp_getset, stream_attributes},
    {0, NULL},
};

static PyType_Spec stream_spec = {
    .name = "gpuopt.Stream",
    .basicsize = sizeof(stream_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = stream_slots,
};

/* ---- Event ---- */

static PyObject *
event_create(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"device", "backend", NULL};
    PyObject *device_object = NULL, *backend_object = NULL;
    int device;
    gpo_backend_id id;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O$O:Event", names, &device_object,
                                     &backend_object) ||
        !parse_place("Event", device_object, backend_object, &id, &device)) {
        return NULL;
    }
    gpo_task task;
    const gpo_backend *backend = gpo_backend_get(id);
    void *handle = NULL;
    gpo_task_init(&task, "Event", backend, device, NULL);
    gpo_status status = backend->begin(&task.call);
    if (!status) {
        status = gpo_device_of(id)->event_new(&task.call, &handle);
        backend->end(&task.call);
    }
    if (status) {
        return gpo_raise(&task.call, status);
    }
    event_object *self = PyObject_New(event_object, type);
    if (self) {
        self->id = id;
        self->device = device;
        self->recorded = false;
        self->handle = handle;
    }
    return (PyObject *)self;
}

static void
event_release(event_object *self)
{
    gpo_task task;
    const gpo_backend *backend = gpo_backend_get(self->id);
    if (!self->handle) {
        return;
    }
    gpo_task_init(&task, "Event", backend, self->device, NULL);
    gpo_device_of(self->id)->event_free(&task.call, self->handle);
    self->handle = NULL;
}

static void
event_dealloc(event_object *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    event_release(self);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static bool
event_usable(event_object *self, bool recorded)
{
    if (!self->handle) {
        PyErr_SetString(PyExc_ValueError,
                        "the event was freed at the end of its `with`");
    }
    else if (recorded && !self->recorded) {
        PyErr_SetString(PyExc_ValueError, "the event was not recorded");
    }
    return self->handle && (!recorded || self->recorded);
}

static PyObject *
event_record(event_object *self, PyObject *args)
{
    PyObject *object = Py_None;
    void *stream;
    if (!PyArg_ParseTuple(args, "|O:record", &object) || !event_usable(self, false)) {
        return NULL;
    }
    const int given = gpo_stream_handle(object, "record", &stream);
    if (given < 0 || !gpo_stream_fits(object, self->id, self->device)) {
        return NULL;
    }
    if (!given) {
        gpo_stream_current(self->id, self->device, &stream);
    }
    PyObject *done = run_step("record", self->id, self->device, stream,
                              gpo_device_of(self->id)->event_record, self->handle);
    self->recorded = self->recorded || done;
    return done;
}

static PyObject *
event_synchronize(event_object *self, PyObject *unused)
{
    (void)unused;
    if (!event_usable(self, true)) {
        return NULL;
    }
    return run_step("synchronize", self->id, self->device, NULL,
                    gpo_device_of(self->id)->event_wait, self->handle);
}

static PyObject *
event_elapsed(event_object *self, PyObject *object)
{
    if (Py_TYPE(object) != gpo_py.event) {
        return PyErr_Format(PyExc_TypeError, "elapsed() takes an Event, not %R",
                            (PyObject *)Py_TYPE(object));
    }
    event_object *last = (event_object *)object;
    if (!event_usable(self, true) || !event_usable(last, true)) {
        return NULL;
    }
    if (self->id != last->id || self->device != last->device) {
        PyErr_SetString(PyExc_ValueError, "the events are of different devices");
        return NULL;
    }
    double ms = 0;
    gpo_task task;
    const gpo_backend *backend = gpo_backend_get(self->id);
    gpo_task_init(&task, "elapsed", backend, self->device, NULL);
    PyThreadState *thread = PyEval_SaveThread();
    gpo_status status = backend->begin(&task.call);
    if (!status) {
        status = gpo_device_of(self->id)->event_elapsed(&task.call, self->handle,
                                                        last->handle, &ms);
        backend->end(&task.call);
    }
    PyEval_RestoreThread(thread);
    return status ? gpo_raise(&task.call, status) : PyFloat_FromDouble(ms);
}

static PyObject *
event_get_done(event_object *self, void *unused)
{
    (void)unused;
    if (!event_usable(self, true)) {
        return NULL;
    }
    bool done = false;
    gpo_task task;
    const gpo_backend *backend = gpo_backend_get(self->id);
    gpo_task_init(&task, "done", backend, self->device, NULL);
    gpo_status status = backend->begin(&task.call);
    if (!status) {
        status = gpo_device_of(self->id)->event_done(&task.call, self->handle, &done);
        backend->end(&task.call);
    }
    return status ? gpo_raise(&task.call, status) : PyBool_FromLong(done);
}

static PyObject *
event_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(self);
}

static PyObject *
event_exit(event_object *self, PyObject *unused)
{
    (void)unused;
    event_release(self);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(
    event_doc,
    "Event(device=0, *, backend='cuda')\n--\n\n"
    "A mark in a stream: to wait for, to order streams by, to measure with.\n\n"
    "`with event:` frees it at the end.");

static PyMethodDef event_methods[] = {
    {"record", (PyCFunction)event_record, METH_VARARGS,
     "record($self, stream=None, /)\n--\n\nMark what is queued on the stream now."},
    {"synchronize", (PyCFunction)event_synchronize, METH_NOARGS,
     "synchronize($self, /)\n--\n\nWait until the marked work is done."},
    {"elapsed", (PyCFunction)event_elapsed, METH_O,
     "elapsed($self, later, /)\n--\n\nMilliseconds from this event to a later one; "
     "waits "
     "for it."},
    {"__enter__", event_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)event_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef event_attributes[] = {
    {"done", (getter)event_get_done, NULL, "Whether the marked work is done.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot event_slots[] = {
    {Py_tp_doc, (void *)event_doc},         {Py_tp_new, (void *)event_create},
    {Py_tp_dealloc, (void *)event_dealloc}, {Py_tp_methods, event_methods},
    {Py_tp_getset, event_attributes},       {0, NULL},
};

static PyType_Spec event_spec = {
    .name = "gpuopt.Event",
    .basicsize = sizeof(event_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = event_slots,
};

/* ---- functions of a device ---- */

static bool
parse_function(PyObject *args, PyObject *kwargs, const char *format, gpo_backend_id *id,
               int *device)
{
    static char *names[] = {"device", "backend", NULL};
    PyObject *device_object = NULL, *backend_object = NULL;
    return PyArg_ParseTupleAndKeywords(args, kwargs, format, names, &device_object,
                                       &backend_object) &&
           parse_place(strchr(format, ':') + 1, device_object, backend_object, id,
                       device);
}

static gpo_status
synchronize_step(gpo_call *call, void *id)
{
    return gpo_device_of(*(gpo_backend_id *)id)->synchronize(call);
}

static gpo_status
trim_step(gpo_call *call, void *id)
{
    return gpo_device_of(*(gpo_backend_id *)id)->trim(call);
}

PyDoc_STRVAR(synchronize_doc, "synchronize(device=0, *, backend='cuda')\n--\n\n"
                              "Wait until all work of a device is done.");

static PyObject *
synchronize(PyObject *module, PyObject *args, PyObject *kwargs)
{
    (void)module;
    gpo_backend_id id;
    int device;
    if (!parse_function(args, kwargs, "|O$O:synchronize", &id, &device)) {
        return NULL;
    }
    PyObject *done = run_step("synchronize", id, device, NULL, synchronize_step, &id);
    if (done) {
        gpo_reap();
    }
    return done;
}

PyDoc_STRVAR(
    empty_cache_doc,
    "empty_cache(device=0, *, backend='cuda')\n--\n\n"
    "Give the memory that the pool of a device holds unused back to the driver.");

static PyObject *
empty_cache(PyObject *module, PyObject *args, PyObject *kwargs)
{
    (void)module;
    gpo_backend_id id;
    int device;
    if (!parse_function(args, kwargs, "|O$O:empty_cache", &id, &device)) {
        return NULL;
    }
    gpo_reap();
    return run_step("empty_cache", id, device, NULL, trim_step, &id);
}

PyDoc_STRVAR(
    memory_info_doc,
    "memory_info(device=0, *, backend='cuda')\n--\n\n"
    "A dict of bytes: free and total of the device, and pool, which gpuopt's pool\n"
    "holds for later calls and is not counted as free.");

static PyObject *
memory_info(PyObject *module, PyObject *args, PyObject *kwargs)
{
    (void)module;
    gpo_backend_id id;
    int device;
    size_t free_bytes, total_bytes, pool_bytes;
    if (!parse_function(args, kwargs, "|O$O:memory_info", &id, &device)) {
        return NULL;
    }
    gpo_task task;
    const gpo_backend *backend = gpo_backend_get(id);
    gpo_task_init(&task, "memory_info", backend, device, NULL);
    gpo_status status = backend->begin(&task.call);
    if (!status) {
        status = gpo_device_of(id)->memory(&task.call, &free_bytes, &total_bytes,
                                           &pool_bytes);
        backend->end(&task.call);
    }
    if (status) {
        return gpo_raise(&task.call, status);
    }
    return Py_BuildValue("{s:n,s:n,s:n}", "free", (Py_ssize_t)free_bytes, "total",
                         (Py_ssize_t)total_bytes, "pool", (Py_ssize_t)pool_bytes);
}

PyDoc_STRVAR(device_count_doc,
             "device_count(backend='cuda')\n--\n\n"
             "How many devices a backend has; 0 if it cannot run here.");

static PyObject *
device_count(PyObject *module, PyObject *args, PyObject *kwargs)
{
    (void)module;
    static char *names[] = {"backend", NULL};
    PyObject *backend = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:device_count", names,
                                     &backend)) {
        return NULL;
    }
    const int id =
        backend && backend != Py_None ? gpo_backend_from_name(backend) : GPO_CUDA;
    if (id < 0) {
        return NULL;
    }
    return PyLong_FromLong(id == GPO_CPU ? 1
                                         : gpo_device_of((gpo_backend_id)id)->count());
}

#define KEYWORDS(f) (PyCFunction)(void (*)(void)) f, METH_VARARGS | METH_KEYWORDS

static PyMethodDef methods[] = {
    {"synchronize", KEYWORDS(synchronize), synchronize_doc},
    {"empty_cache", KEYWORDS(empty_cache), empty_cache_doc},
    {"memory_info", KEYWORDS(memory_info), memory_info_doc},
    {"device_count", KEYWORDS(device_count), device_count_doc},
    {NULL, NULL, 0, NULL},
};

int
gpo_stream_init(PyObject *module)
{
    gpo_py.stream =
        (PyTypeObject *)PyType_FromModuleAndSpec(module, &stream_spec, NULL);
    gpo_py.event = (PyTypeObject *)PyType_FromModuleAndSpec(module, &event_spec, NULL);
    if (!gpo_py.stream || !gpo_py.event ||
        PyModule_AddType(module, gpo_py.stream) < 0 ||
        PyModule_AddType(module, gpo_py.event) < 0) {
        return -1;
    }
    return PyModule_AddFunctions(module, methods);
}
