/*
 * bind.h  What the files of bind/ share: the Python and NumPy headers, the objects
 * made once at import, and the steps of a call.
 * Ownership: a function that returns PyObject * gives a new reference; arguments are
 * borrowed.
 */
#ifndef GPO_BIND_H
#define GPO_BIND_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define PY_ARRAY_UNIQUE_SYMBOL gpo_numpy_api
#ifndef GPO_IMPORT_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include "../backend/device.h"

#include "dlpack.h"

/* ---- objects made once at import: module.c ---- */

/* Arguments every operator takes after its own; `out` may also come by position. */
enum { COMMON_OUT, COMMON_VARIANT, COMMON_BACKEND, COMMON_STREAM, NCOMMON };

/* What the binding adds to a descriptor: names to compare, defaults, documentation. */
typedef struct gpo_binding {
    const gpo_op *op;
    int nargs, narrays;
    PyObject *name[GPO_MAX_ARGS + NCOMMON]; /* interned; the common ones last */
    gpo_option preset[GPO_MAX_ARGS];
    char *doc; /* "name(signature)\n--\n\n" and the descriptor's doc */
} gpo_binding;

typedef struct gpo_python {
    PyObject *cuda_error, *context_dead_error, *out_of_memory_error;
    PyObject *variant_error, *simulator_error, *performance_warning;
    PyObject *axis_error;    /* numpy.exceptions.AxisError */
    PyObject *shares_memory; /* numpy.shares_memory */
    PyObject *close_matches; /* difflib.get_close_matches */
    PyObject *bf16;          /* ml_dtypes.bfloat16 once seen, else NULL */
    int bf16_typenum;        /* its NumPy type number, else -1 */
    PyTypeObject *device_array, *stream, *event; /* the classes */
} gpo_python;

extern gpo_python gpo_py;
extern gpo_binding gpo_bindings[];
extern const int gpo_nbindings;

/*
 * The binding called `name`, or the first one of the ladder called so; NULL with
 * ValueError set if there is none.
 */
gpo_binding *gpo_binding_find(PyObject *name);

/* ---- the default backend: introspect.c ---- */

/* The backend of calls on host arrays that name none; -1 with an exception set. */
int gpo_default_backend(void);

/* The backend called `name` (a str); -1 with ValueError or TypeError set. */
int gpo_backend_from_name(PyObject *name);

extern const char *const gpo_backend_names[GPO_NBACKENDS];

int gpo_introspect_init(PyObject *module); /* adds its functions; -1 on failure */

/* Adds the simulator's settings and reports: sim_py.c; -1 on failure. */
int gpo_sim_py_init(PyObject *module);

/* ---- errors: errors.c ---- */

/* Sets the exception for `status` from the call's sentence; always returns NULL. */
PyObject *gpo_raise(const gpo_call *call, gpo_status status);

/* VariantError: no variant `name`; lists those of `op` and suggests one. */
PyObject *gpo_raise_variant(const gpo_op *op, PyObject *name, const char *hint);

/* "f16, f32, ..." of the dtypes for which run[] is set. */
PyObject *gpo_supported_dtypes(const gpo_variant *variant);

/* ---- host arrays: array.c ---- */

/*
 * An array argument is read in two steps.  `take` sends what came through the gate
 * and np.asarray, which may run any Python code, resize() of an array taken before among it.  `view` reads
 * dtype, shape and address and runs none: a call takes all its arguments, then views.
 * An aligned, native ndarray is viewed as it is, another one is copied into native
 * layout; `*owner` receives a new reference that keeps the viewed memory alive.  NULL
 * or false with an exception set.
 */
PyArrayObject *gpo_array_take(PyObject *object, const char *argument);
bool gpo_array_view(PyArrayObject *given, const char *argument, gpo_array *array,
                    PyArrayObject **owner);

/* Both steps, where there is one array. */
bool gpo_array_wrap(PyObject *object, const char *argument, gpo_array *array,
                    PyArrayObject **owner);

/* A new C-contiguous ndarray with the dtype and shape of `array`; NULL on failure. */
PyArrayObject *gpo_array_new(const gpo_array *array);

/* The NumPy scalar held at `data`; NULL on failure. */
PyObject *gpo_array_scalar(gpo_dtype dtype, void *data);

/* `owner` converted to `dtype` as a new C-contiguous ndarray, in NumPy's casting. */
PyArrayObject *gpo_array_converted(PyArrayObject *owner, gpo_dtype dtype);

/* A Python int as a 0-d array of `dtype`, a floating or complex one: float(number). */
PyArrayObject *gpo_array_of_number(PyObject *number, gpo_dtype dtype);

/* The dtype meant by a dtype-like object; GPO_NONE with TypeError set. */
gpo_dtype gpo_dtype_from_object(PyObject *object, const char *function);

/* The NumPy descriptor of a dtype; NULL with an exception if bf16 has none. */
PyArray_Descr *gpo_dtype_descr(gpo_dtype dtype);

/* The gpuopt dtype of a NumPy descriptor, GPO_NONE if gpuopt has none (no error). */
gpo_dtype gpo_dtype_from_descr(PyArray_Descr *descr);

/* The bytes an array spans: [*low, *high) relative to its first element. */
void gpo_array_extent(const gpo_array *array, int64_t *low, int64_t *high);

/* "(2, 3)" as a tuple; NULL on failure. */
PyObject *gpo_shape_tuple(int ndim, const int64_t *shape);

bool gpo_same_shape(const gpo_array *a, const gpo_array *b);

/* ---- work outside of an operator: task.c ---- */

/* A call of no operator: what the backend's functions need to work and to complain. */
typedef struct gpo_task {
    gpo_op op; /* its name alone */
    gpo_call call;
} gpo_task;

void gpo_task_init(gpo_task *task, const char *name, const gpo_backend *backend,
                   int device, void *stream);

/* Resets what one call of `op` may leave in a gpo_call. */
void gpo_call_init(gpo_call *call, const gpo_op *op);

/* The table of a backend with device memory. */
const gpo_device *gpo_device_of(gpo_backend_id id);

/* False with CudaError or SimulatorError set if the backend cannot run here. */
bool gpo_check_available(gpo_backend_id id);

/* And ValueError if it has no such device. */
bool gpo_check_device(gpo_backend_id id, int64_t device);

/* ---- arrays on a device: device_array.c ---- */

/* One piece of device memory, shared by the views of it.  Changed with the GIL held. */
typedef struct gpo_memory {
    Py_ssize_t references;
    Py_ssize_t exports; /* references that another library holds */
    gpo_backend_id id;
    const gpo_backend *backend; /* where it was allocated: the simulator has two */
    int device;
    void *stream;     /* it is written, and freed, in the order of this stream */
    PyObject *keeper; /* the stream's object, or NULL */
    PyObject *owner;  /* of memory that is not ours to free, else NULL */
    void *base;       /* NULL once freed */
    size_t bytes;
} gpo_memory;

typedef struct gpo_device_array {
    PyObject_HEAD gpo_memory *memory;
    bool readonly;
    gpo_array array;
} gpo_device_array;

bool gpo_device_array_check(PyObject *object);

/*
 * A DeviceArray of `array`, whose memory `base` it takes over, also when it fails; with
 * `owner` the memory stays the owner's.  id GPO_CPU is host memory of malloc, a result
 * on its way to another library.  NULL on failure.
 */
PyObject *gpo_device_array_new(gpo_backend_id id, const gpo_backend *backend,
                               int device, void *stream, PyObject *keeper, void *base,
                               PyObject *owner, const gpo_array *array);

/* False with ValueError set if its memory is freed, or is of another simulator library. */
bool gpo_device_array_usable(gpo_device_array *self, const char *function);

int gpo_device_array_init(PyObject *module);

int gpo_asdevice_init(PyObject *module); /* asdevice.c */

/* ---- arrays of other libraries: exchange.c ---- */

typedef enum gpo_family {
    GPO_HOST,     /* NumPy, or what NumPy makes an array of */
    GPO_OWN,      /* gpuopt.DeviceArray */
    GPO_EXCHANGE, /* the type has DLPack's C table: torch */
    GPO_TORCH,    /* a torch without the table */
    GPO_CUPY,
    GPO_JAX,
    GPO_INTERFACE, /* on a GPU, by DLPack or the CUDA array interface alone */
} gpo_family;

/* An array that is no host array, as one call uses it. */
typedef struct gpo_foreign {
    gpo_family family;
    gpo_backend_id id; /* where its memory is */
    int device;
    bool readonly;
    bool retain;     /* its producer does not wait for our reads before it frees */
    bool has_stream; /* what is on `stream` now comes before the call */
    bool detach;     /* it requires grad and nothing is recorded: see gate.c */
    void *stream;
    const dl_exchange *api; /* GPO_EXCHANGE */
    PyObject *object;       /* borrowed: the caller's */
    PyObject *keep;         /* keeps the memory alive; new reference */
    PyObject *keeper;       /* keeps `stream` alive; new reference or NULL */
} gpo_foreign;

/* A result in the making, in the memory of its library. */
typedef struct gpo_made {
    dl_versioned *tensor; /* GPO_EXCHANGE */
    PyObject *array;      /* else a DeviceArray */
} gpo_made;

/* Which family `object` is of; GPO_HOST costs no exception.  -1 with one set. */
int gpo_family_of(PyObject *object, gpo_foreign *out);

/*
 * Views `object`, of the family in `foreign`.  `stream`, if given, is where the call will
 * run: a producer that orders streams itself is told so.
 */
bool gpo_foreign_wrap(PyObject *object, const char *function, const char *argument,
                      const void *const *stream, gpo_array *array,
                      gpo_foreign *foreign);

void gpo_foreign_clear(gpo_foreign *foreign);

/*
 * The object of `stream`, if it is the one that a loaded library works on now: a new
 * reference, which keeps the stream.  NULL, without an exception, if it is not.
 */
PyObject *gpo_stream_holder(void *stream, int device);

/* A CPU array of another library as an ndarray over the same memory. */
PyArrayObject *gpo_foreign_ndarray(const gpo_array *array, const gpo_foreign *foreign);

/* Memory for a result as `like`'s library wants it; sets out->data. */
bool gpo_foreign_alloc(const gpo_foreign *like, gpo_array *out, gpo_made *made);
/* The library's array of it; takes over what is in `made`.  NULL on failure. */
PyObject *gpo_foreign_finish(const gpo_foreign *like, gpo_made *made);
void gpo_made_clear(gpo_made *made);

/* Keeps `object` alive until what is queued on the call's stream is done. */
bool gpo_retain(gpo_call *call, PyObject *object);
/* Lets go of what is done. */
void gpo_reap(void);

/* dl_tensor's dtype of ours, and "numpy.ndarray" of an object, for messages. */
dl_dtype gpo_dlpack_dtype(gpo_dtype dtype);
PyObject *gpo_type_name(PyObject *object);

/* The attribute, or NULL without an exception if there is none. */
PyObject *gpo_lookup(PyObject *object, const char *name);

/* Whether `module`, a name, is that of package `name` or of one below. */
bool gpo_is_of_package(PyObject *module, const char *name);

/* The last attribute of a chain from a loaded module, and what a call of it gives. */
PyObject *gpo_module_attribute(const char *module, const char *const *path);
PyObject *gpo_module_call(const char *module, const char *const *path,
                          PyObject *argument);

/* ---- what makes an array more than its memory: gate.c ---- */

/*
 * Whether the memory of `object` says all of it; false with TypeError set, which names
 * the call that gives plain memory.  _host: of what np.asarray takes; _class and then
 * _tensor: of an array of another library, by its type and by its bits, that of the
 * conjugate only where it may be complex.  `*detach`: it requires grad and nobody asks.
 */
bool gpo_gate_host(PyObject *object, const char *argument);
bool gpo_gate_class(PyObject *object, const char *argument);
bool gpo_gate_tensor(PyObject *object, const char *argument, bool is_complex,
                     bool *detach);

/* The same, now that its memory is known: elements must have an address. */
bool gpo_gate_memory(PyObject *object, const char *argument, const gpo_array *array);

/*
 * After a library failed to give the memory of `object`, or gave none: TypeError with
 * what `object` says of itself, the library's exception its cause.  Always false.
 */
bool gpo_gate_explain(PyObject *object, const char *argument);

/*
 * After a library gave no memory for a result: TypeError if it gave an array without or
 * works on arrays without, else the library's exception stays.  Always false.
 */
bool gpo_gate_no_result(void);

/* DLPack's C exchange table of the type; NULL if it has none, or with an exception. */
const dl_exchange *gpo_gate_table(PyObject *object);

/* Whether it is a torch.Tensor of any class; the table was asked for before. */
bool gpo_gate_is_torch(PyObject *object);

/* Tells the library of `object` that its elements are others now. */
void gpo_gate_written(PyObject *object);

/* ---- streams and events: stream.c ---- */

/*
 * The handle of a stream object: an int, a gpuopt.Stream, what has __cuda_stream__, a
 * torch or a CuPy stream.  -1 with an exception set, 0 for None, 1 for a handle.
 * id and device are those of the arrays: a gpuopt.Stream must agree.
 */
int gpo_stream_handle(PyObject *object, const char *function, void **stream);
bool gpo_stream_fits(PyObject *object, gpo_backend_id id, int device);

/* The stream that `with stream:` made current in this thread, borrowed, or NULL. */
PyObject *gpo_stream_current(gpo_backend_id id, int device, void **stream);

int gpo_stream_init(PyObject *module);

/* ---- what the last call did: last_call.c ---- */

typedef struct gpo_last {
    const char *op, *backend, *variant;
    bool packed;                              /* an input was copied first */
    bool pageable;                            /* without pinned memory */
    double upload_ms, kernel_ms, download_ms; /* negative: not measured */
} gpo_last;

extern gpo_last gpo_last_call; /* changed with the GIL held */
extern bool gpo_measuring;

int gpo_last_call_init(PyObject *module);

/* ---- calls: call.c, options.c and run.c ---- */

/* Sets TypeError: "f() argument 'x' must be a str, not 'int'"; always false. */
bool gpo_raise_type(PyObject *object, const char *function, const char *argument,
                    const char *wanted);

/* The 64-bit whole number of an argument; false with a sentence about it set. */
bool gpo_int_parse(PyObject *object, const char *function, const char *argument,
                   int64_t *out);

/* What this thread gave up to compute without the GIL; NULL while it has it. */
extern _Thread_local PyThreadState *gpo_released;

PyObject *gpo_op_call(gpo_binding *binding, PyObject *const *args, Py_ssize_t nargs,
                      PyObject *kwnames);

/* plan(op, *args, **kwargs): the same steps without computing; a dict. */
PyObject *gpo_op_plan(gpo_binding *binding, PyObject *const *args, Py_ssize_t nargs,
                      PyObject *kwnames);

#endif
