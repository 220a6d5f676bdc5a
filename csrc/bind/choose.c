/*
 * choose.c  Chooses the backend and the variant of a call: those that the caller names,
 * else the backend of the arrays or the default, and the choice of the operator's
 * table.  Where nobody names a backend and there is a GPU, a call on host arrays runs
 * where it is estimated to be done first, copies included (weigh.c).
 * Order: errors, backend, variant.
 */
#include "choose.h"

#include "backends.h"
#include "errors.h"
#include "options.h"
#include "rates.h"

#include "../backend/sim.h"

/* ---- errors ---- */

static const gpo_variant *
find_variant(const gpo_table *table, PyObject *name)
{
    for (const gpo_variant *v = table ? table->variants : NULL; v && v->name; v++) {
        if (PyUnicode_CompareWithASCIIString(name, v->name) == 0) {
            return v;
        }
    }
    return NULL;
}

static bool
raise_no_variant(const frame *f, PyObject *name)
{
    const gpo_op *op = f->binding->op;
    const char *hint = NULL;
    if (f->place->bound && find_variant(op->cpu, name)) {
        hint = "it runs on the CPU and the arrays are on a device; "
               "x.numpy() brings them to the host";
    }
    else if (!gpo_sim_lacks(op) &&
             (find_variant(gpo_backend_table(GPO_SIM, op), name) ||
              find_variant(gpo_backend_table(GPO_CUDA, op), name))) {
        hint = "it is a CUDA rung and this call runs on the CPU; "
               "backend=\"sim\" runs it in the simulator";
    }
    gpo_raise_variant(op, name, hint);
    return false;
}

/* The TypeError for a dtype that no variant, or a named one, supports. */
static bool
raise_dtype(const frame *f, const gpo_variant *variant, bool named)
{
    PyObject *supported = gpo_supported_dtypes(variant);
    if (supported) {
        PyErr_Format(
            PyExc_TypeError, "%s(%s%s) does not support dtype '%s'; supported: %U",
            f->binding->op->name, named ? "variant=" : "", named ? variant->name : "",
            gpo_dtypes[f->call.in[f->binding->op->by].dtype].name, supported);
        Py_DECREF(supported);
    }
    return false;
}

/* Whether the call's device can run its variant, chosen or named. */
static bool
check_needs(const frame *f)
{
    const gpo_variant *variant = f->call.variant;
    const char *lack = gpo_lacks(f->call.backend, f->call.device, variant->needs);
    if (lack) {
        PyErr_Format(gpo_py.variant_error,
                     "%s(variant='%s') needs %s and %s; gpuopt.variants() lists what "
                     "runs here",
                     f->binding->op->name, variant->name, variant->needs, lack);
    }
    return !lack;
}

/* Whether a named shape kernel takes the call. */
static bool
check_shape(const frame *f)
{
    const gpo_variant *variant = f->call.variant;
    if (variant->takes && !variant->takes(&f->call)) {
        PyErr_Format(
            gpo_py.variant_error,
            "%s(variant='%s') takes %s alone; variant='auto' takes it where it "
            "is the fastest",
            f->binding->op->name, variant->name, variant->shape);
        return false;
    }
    return true;
}

/* The value of a common argument, or NULL if it is None or omitted. */
static PyObject *
given(const frame *f, int common)
{
    PyObject *value = f->value[f->binding->nargs + common];
    return value == Py_None ? NULL : value;
}

static bool
is_named(PyObject *variant)
{
    return variant && PyUnicode_Check(variant) &&
           PyUnicode_CompareWithASCIIString(variant, "auto") != 0;
}

/* ---- backend ---- */

/* Whether the costs of this machine decide the backend: nobody names it, or a rung. */
static bool
is_weighed(const frame *f)
{
    return !given(f, COMMON_BACKEND) && !is_named(given(f, COMMON_VARIANT)) &&
           gpo_backend_is_free();
}

bool
gpo_choose_prepare(const frame *f)
{
    static bool no_gpu; /* none appears later; changed with the GIL held */
    if (no_gpu || f->any_foreign || !gpo_rates_wanted() || !is_weighed(f)) {
        return true;
    }
    no_gpu = gpo_backend_cuda.unavailable() != NULL;
    return no_gpu || gpo_rates_load();
}

/* The backend of a call on host arrays that names none; -1 with an exception set. */
static int
host_backend(const frame *f)
{
    const int device = gpo_rates_device(), preset = gpo_default_backend();
    /* the simulator stands in for a GPU in tests */
    if (preset < 0 || device < 0 || !(device == preset || device == GPO_SIM) ||
        !is_weighed(f)) {
        return preset;
    }
    const gpo_estimate e =
        gpo_rates_estimate(&f->call, (int)(f->binding - gpo_bindings));
    return e.device < e.cpu ? device : GPO_CPU;
}

static bool
choose_backend(frame *f)
{
    const gpo_foreign *like = f->like;
    PyObject *name = given(f, COMMON_BACKEND);
    const int id = name                       ? gpo_backend_from_name(name)
                   : like->family != GPO_HOST ? (int)like->id
                                              : host_backend(f);
    if (id < 0) {
        return false;
    }
    if (f->place->bound && id != (int)like->id) {
        PyErr_Format(PyExc_ValueError,
                     "%s() got backend='%s' for arrays on %s:%d; x.numpy() brings "
                     "them to the host",
                     f->binding->op->name, gpo_backend_names[id],
                     gpo_backend_names[like->id], like->device);
        return false;
    }
    f->id = (gpo_backend_id)id;
    f->call.backend = gpo_backend_get(f->id);
    return gpo_check_available(f->id);
}

/* ---- variant ---- */

/* Where the reason of the choice goes. */
static char *
reason(frame *f)
{
    return f->explains ? f->why : NULL;
}

/* The variant `name` of `table`, or of the CPU's if the caller names no backend. */
static bool
choose_named(frame *f, const gpo_table *table, PyObject *name)
{
    const gpo_op *op = f->binding->op;
    gpo_call *call = &f->call;
    call->variant = find_variant(table, name);
    if (!call->variant && !f->place->bound && !given(f, COMMON_BACKEND) &&
        f->id != GPO_CPU) {
        call->variant = find_variant(op->cpu, name); /* simd, threads, ... */
        f->id = GPO_CPU;
        call->backend = gpo_backend_get(GPO_CPU);
    }
    if (!call->variant) {
        return raise_no_variant(f, name);
    }
    if (!call->variant->run[call->in[op->by].dtype]) {
        return raise_dtype(f, call->variant, true);
    }
    GPO_SAY(reason(f), "asked for by name");
    return check_needs(f) && check_shape(f);
}

/* The variant that the table's choose() returns for the plan. */
static bool
choose_by_plan(frame *f, const gpo_table *table)
{
    gpo_call *call = &f->call;
    call->variant = table->choose(call, reason(f));
    if (!call->variant || !call->variant->run[call->in[call->op->by].dtype]) {
        return raise_dtype(f, table->variants, false);
    }
    return check_needs(f);
}

bool
gpo_choose_again(frame *f)
{
    return is_named(given(f, COMMON_VARIANT)) ||
           choose_by_plan(f, gpo_backend_table(f->id, f->call.op));
}

bool
gpo_choose_variant(frame *f)
{
    const gpo_op *op = f->binding->op;
    gpo_call *call = &f->call;
    PyObject *name = given(f, COMMON_VARIANT);
    if (!choose_backend(f)) {
        return false;
    }
    const gpo_table *table = gpo_backend_table(f->id, op);
    if (!table) { /* only a simulator built for some rooms lacks one */
        const char *lack = gpo_sim_lacks(op);
        PyErr_Format(gpo_py.simulator_error, "%s() has no backend '%s'%s%s", op->name,
                     call->backend->name, lack ? ": " : "", lack ? lack : "");
        return false;
    }
    if (name && !PyUnicode_Check(name)) {
        return gpo_raise_type(name, op->name, "variant", "a str");
    }
    return is_named(name) ? choose_named(f, table, name) : choose_by_plan(f, table);
}
