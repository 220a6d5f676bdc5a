/*
 * known.c  Tensors of indices that an earlier call found right.  A call that raises for
 * an index out of bounds waits for a kernel that reads all of them; where torch says
 * that the tensor has not changed since (its _version counts writes, and views share
 * the count), the wait has no purpose.  Kernels check every index all the same: what
 * torch does not see, such as a kernel of another library that writes to the tensor, is
 * told by the next call (gpo_later_question).
 * Order: the table, what a call sees, asks and keeps, at exit.
 */
#include "known.h"

#include "backends.h"
#include "errors.h"
#include "facts.h"
#include "module.h"
#include "objects.h"
#include "task.h"

#include <string.h>

/* ---- the table ---- */

/* A tensor as a call found it; a later sighting takes the place of an earlier one. */
typedef struct sighting {
    PyObject *tensor; /* a weak reference; NULL: unused */
    gpo_view_key key;
    gpo_indices facts;
} sighting;

enum { SIGHTINGS = 64, DEVICES = 64 };
static sighting table[SIGHTINGS]; /* with the GIL held, as all of this */
static uint64_t devices;          /* bit d: a tensor was found right on GPU d */

static sighting *
place_of(const gpo_view_key *key)
{
    const uint64_t mixed =
        ((uintptr_t)key->tensor >> 4) * 31 + ((uintptr_t)key->data >> 4);
    return &table[(mixed ^ mixed >> 12) % SIGHTINGS];
}

/* Of dimensions and strides: two views of a tensor may begin at the same address. */
static uint64_t
layout_of(const gpo_array *a)
{
    uint64_t hash = (uint64_t)a->ndim;
    for (int d = 0; d < a->ndim; d++) {
        hash = (hash ^ (uint64_t)a->shape[d]) * 0x100000001b3u;
        hash = (hash ^ (uint64_t)a->strides[d]) * 0x100000001b3u;
    }
    return hash;
}

static bool
is_of(const sighting *s, const gpo_view_key *key)
{
    return s->tensor && s->key.tensor == key->tensor && s->key.data == key->data &&
           s->key.version == key->version && s->key.layout == key->layout &&
           s->key.dtype == key->dtype && PyWeakref_GetObject(s->tensor) == key->tensor;
}

/* ---- what a call sees, asks and keeps ---- */

/* The count of a tensor's changes, or -1: a tensor of inference mode has none. */
static long long
version_of(PyObject *tensor)
{
    static PyObject *name;
    if (!name) {
        name = PyUnicode_InternFromString("_version");
    }
    PyObject *value = name ? PyObject_GetAttr(tensor, name) : NULL;
    const long long version = value ? PyLong_AsLongLong(value) : -1;
    Py_XDECREF(value);
    PyErr_Clear();
    return version;
}

/* The tensor of which this one is a view, or itself: a new reference, or NULL. */
static PyObject *
base_of(PyObject *tensor)
{
    static PyObject *name;
    if (!name) {
        name = PyUnicode_InternFromString("_base");
    }
    PyObject *base = name ? PyObject_GetAttr(tensor, name) : NULL;
    if (base == Py_None) {
        Py_DECREF(base);
        base = Py_NewRef(tensor);
    }
    PyErr_Clear();
    return base;
}

void
gpo_known_see(frame *f, PyObject *object)
{
    const gpo_facts *facts = gpo_facts_of(object);
    if (!facts) {
        PyErr_Clear();
        return;
    }
    if (facts->torch && !facts->overrides) {
        f->seen.version = version_of(object);
        f->seen.tensor = f->seen.version < 0 ? NULL : base_of(object);
    }
}

/* On the CPU there is nothing to wait for, and a copy to the GPU is waited for anyway. */
static bool
is_worth_it(const frame *f)
{
    return f->seen.tensor && (f->place->bound || f->id == GPO_SIM);
}

void
gpo_known_ask(frame *f)
{
    if (!f->seen.tensor) {
        return;
    }
    const gpo_array *in = &f->call.in[f->call.op->indices];
    f->seen.data = in->data;
    f->seen.dtype = in->dtype;
    f->seen.layout = layout_of(in);
    const sighting *s = place_of(&f->seen);
    if (is_of(s, &f->seen)) {
        f->call.known = s->facts;
    }
}

/* At the first call on a GPU that may not wait: see gpuopt/_late.py. */
static bool
report_at_exit(const frame *f)
{
    PyObject *report = devices ? NULL : gpo_import_attribute("gpuopt._late", "report");
    const bool good = devices || report;
    if (good && f->place->bound && f->call.device < DEVICES) {
        devices |= UINT64_C(1) << f->call.device;
    }
    Py_XDECREF(report);
    return good;
}

void
gpo_known_settle(frame *f)
{
    if (!is_worth_it(f)) {
        f->call.known = (gpo_indices){0, 0, 0};
    }
}

void
gpo_known_keep(frame *f)
{
    const gpo_indices found = f->call.found;
    if (!is_worth_it(f) || found.low >= found.high) {
        return;
    }
    sighting *s = place_of(&f->seen);
    if (is_of(s, &f->seen)) {
        s->facts = found;
        return;
    }
    PyObject *reference = PyWeakref_NewRef(f->seen.tensor, NULL);
    if (reference && report_at_exit(f)) {
        Py_XDECREF(s->tensor);
        *s = (sighting){reference, f->seen, found};
        return;
    }
    Py_XDECREF(reference);
    PyErr_Clear(); /* Python is ending: a later call waits */
}

/* ---- at exit ---- */

PyDoc_STRVAR(check_late_doc,
             "check_late()\n--\n\n"
             "Wait for the GPUs, and raise IndexError if a call met an index out of\n"
             "bounds that no call has told of.\n");

static gpo_status
check_device(gpo_task *task, int device)
{
    gpo_task_init(task, "check_late", &gpo_backend_cuda, device, NULL);
    gpo_status status = gpo_backend_cuda.begin(&task->call);
    if (!status) {
        status = gpo_device_of(GPO_CUDA)->synchronize(&task->call);
        gpo_backend_cuda.end(&task->call);
    }
    return status;
}

static PyObject *
check_late(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    gpo_task task;
    for (int device = 0; device < DEVICES; device++) {
        gpo_status status = GPO_OK;
        if (devices >> device & 1) {
            Py_BEGIN_ALLOW_THREADS;
            status = check_device(&task, device);
            Py_END_ALLOW_THREADS;
        }
        if (status) {
            gpo_raise(&task.call, status);
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

int
gpo_known_init(PyObject *module)
{
    static PyMethodDef methods[] = {
        {"check_late", check_late, METH_NOARGS, check_late_doc}, {NULL, NULL, 0, NULL}};
    return PyModule_AddFunctions(module, methods);
}
