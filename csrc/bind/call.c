/*
 * call.c  The steps of a call of any operator, in order: parse, take, prepare, view,
 * wrap, shape, convert, plan, choose, place, run, result.  A step that fails sets a Python
 * exception and returns false; the frame owns everything that must be released.
 *
 * Parsing options, taking arrays and preparing the choice of a backend may run any
 * Python code.  All of it runs before the first view reads a shape or address, and none
 * runs from there on to the result.
 * pick() decides where the arrays are; the steps that depend on that are functions of
 * the placement (place_host.c, place_copy.c, place_device.c).
 *
 * Order: the frame, where the arrays are, up to the shapes of the results, from there
 * to the kernel, results, the call.
 */
#include "call.h"

#include "array.h"
#include "choose.h"
#include "errors.h"
#include "detour.h"
#include "known.h"
#include "numbers.h"
#include "take.h"
#include "task.h"

/* ---- the frame: the state of one call ---- */

/* For one call at a time; nested and concurrent calls allocate theirs. */
static _Alignas(64) frame first;
static frame *spare = &first; /* for the next call; changed with the GIL held */

/* A frame that is always valid for frame_free; NULL with MemoryError set. */
static frame *
frame_new(gpo_binding *binding)
{
    frame *f = spare;
    spare = NULL;
    if (!f) {
        f = PyMem_Malloc(sizeof *f);
    }
    if (!f) {
        PyErr_NoMemory();
        return NULL;
    }
    f->binding = binding;
    f->like = &gpo_numpy;
    f->any_foreign = f->any_int = f->packed = f->explains = false;
    f->why[0] = 0;
    f->seen.tensor = NULL;
    for (int i = 0; i < GPO_MAX_IN; i++) {
        f->given[i] = f->in[i] = NULL;
        f->beyond[i] = false;
    }
    for (int k = 0; k < GPO_MAX_ARRAYS; k++) {
        f->pin[k] = NULL;
        f->foreign[k] = NULL;
    }
    for (int i = 0; i < GPO_MAX_OUT; i++) {
        f->out[i] = f->caller_out[i] = NULL;
        f->caller_object[i] = NULL;
        f->made[i].tensor = NULL;
        f->made[i].array = NULL;
    }
    gpo_call_init(&f->call, binding->op);
    f->call.plan = f->plan;
    return f;
}

static void
frame_free(frame *f)
{
    for (int i = 0; i < f->binding->narrays; i++) {
        Py_XDECREF(f->pin[i]);
        Py_XDECREF((PyObject *)f->given[i]);
        Py_XDECREF((PyObject *)f->in[i]);
    }
    for (int i = 0; i < f->binding->op->nout; i++) {
        Py_XDECREF(f->pin[GPO_MAX_IN + i]);
        Py_XDECREF((PyObject *)f->out[i]);
        if (f->made[i].tensor || f->made[i].array) {
            gpo_made_clear(&f->made[i]);
        }
    }
    Py_XDECREF(f->seen.tensor);
    for (int k = 0; k < GPO_MAX_ARRAYS && f->any_foreign; k++) {
        if (f->foreign[k]) {
            gpo_foreign_clear(f->foreign[k]);
        }
    }
    if (f != &first) {
        PyMem_Free(f);
    }
    else {
        spare = f;
    }
}

frame *
gpo_call_enter(gpo_binding *binding)
{
    if (Py_EnterRecursiveCall(" while calling a gpuopt operator")) {
        return NULL;
    }
    frame *f = frame_new(binding);
    if (!f) {
        Py_LeaveRecursiveCall();
    }
    return f;
}

void
gpo_call_leave(frame *f)
{
    frame_free(f);
    Py_LeaveRecursiveCall();
}

/* ---- where the arrays are ---- */

/*
 * The placement of a call whose inputs are viewed.  Until a backend is chosen, a call
 * on host memory is placed as for the CPU.
 */
static const gpo_placement *
pick(const frame *f)
{
    if (f->like->id != GPO_CPU) {
        return &gpo_place_device;
    }
    return f->call.backend && f->call.backend->device_memory ? &gpo_place_copy
                                                             : &gpo_place_host;
}

/* ---- up to the shapes of the results ---- */

static bool
wrap(frame *f)
{
    f->place = pick(f);
    if (!f->place->wrap(f)) {
        return false;
    }
    for (int i = 0; i < f->binding->op->nout; i++) {
        if (f->caller_object[i]) {
            f->call.out_given[i] = f->caller_dtype[i];
        }
    }
    return true;
}

/*
 * A shape rule that computes in another dtype than that of out=, as NumPy's sums do,
 * sets out_given to that dtype; the result is cast at the end, and this is no error.
 */
static bool
check_output(const frame *f, int i)
{
    const gpo_dtype is = f->call.out_given[i], wanted = f->call.out[i].dtype;
    if (!f->caller_object[i]) {
        return true;
    }
    if (is != wanted) {
        PyErr_Format(PyExc_TypeError, "out has dtype '%s', expected '%s'",
                     gpo_dtypes[is].name, gpo_dtypes[wanted].name);
        return false;
    }
    return f->place->check_out(f, i);
}

/* The operator's shape rule, then the checks of out= against its results. */
static bool
apply_shape_rule(frame *f)
{
    const gpo_status status = f->binding->op->shape(&f->call);
    if (status) {
        gpo_raise(&f->call, status);
        return false;
    }
    if (!gpo_check_out_count(f)) {
        return false;
    }
    for (int i = 0; i < f->call.nout; i++) {
        if (!check_output(f, i)) {
            return false;
        }
    }
    return !f->any_int || gpo_numbers_check(f);
}

bool
gpo_call_prepare(frame *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return gpo_parse(f, args, nargs, kwnames) && gpo_take(f) && gpo_choose_prepare(f) &&
           gpo_view(f) && wrap(f) && apply_shape_rule(f);
}

/* ---- from there to the kernel ---- */

/* Replaces the inputs that the shape rule requests in another dtype. */
static bool
convert(frame *f)
{
    for (int i = 0; i < f->binding->narrays; i++) {
        if (f->call.convert[i] != GPO_NONE && !f->place->convert(f, i)) {
            return false;
        }
    }
    return true;
}

bool
gpo_call_choose(frame *f)
{
    gpo_known_ask(f);
    gpo_make_plan(&f->call);
    if (!gpo_choose_variant(f)) {
        return false;
    }
    f->place = pick(f);
    gpo_known_settle(f);
    return true;
}

/* ---- results ---- */

static PyObject *
results(frame *f)
{
    const int nout = f->call.nout;
    if (nout == 1) {
        return f->place->result(f, 0);
    }
    PyObject *tuple = PyTuple_New(nout);
    for (int i = 0; tuple && i < nout; i++) {
        PyObject *item = f->place->result(f, i);
        if (!item) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SetItem(tuple, i, item); /* steals */
    }
    return tuple;
}

/* ---- the call ---- */

/* By which detour a call is computed: see detour.h. */
typedef struct detour {
    bool masked;
    int large_on; /* the device; -1: the call is not large */
} detour;

/* The result; or NULL without an exception if the call takes a detour.  NULL: none. */
static PyObject *
compute(gpo_binding *binding, PyObject *const *args, Py_ssize_t nargs,
        PyObject *kwnames, detour *way)
{
    PyObject *answer = NULL;
    frame *f = gpo_call_enter(binding);
    if (!f) {
        return NULL;
    }
    const bool good = gpo_call_prepare(f, args, nargs, kwnames);
    if (good && way && gpo_is_masked(f)) {
        way->masked = true;
    }
    else if (good && convert(f) && gpo_call_choose(f)) {
        if (way && gpo_is_large(f)) {
            way->large_on = f->call.device;
        }
        else if (f->place->place(f) && f->place->run(f)) {
            gpo_known_keep(f);
            answer = results(f);
        }
    }
    gpo_call_leave(f);
    return answer;
}

PyObject *
gpo_op_call(gpo_binding *binding, PyObject *const *args, Py_ssize_t nargs,
            PyObject *kwnames)
{
    detour way = {.masked = false, .large_on = -1};
    PyObject *answer = compute(binding, args, nargs, kwnames, &way);
    if (way.masked) {
        return gpo_call_masked(binding, args, nargs, kwnames, -1);
    }
    if (way.large_on < 0) {
        return answer;
    }
    answer = gpo_call_in_blocks(binding, args, nargs, kwnames, way.large_on);
    if (answer != Py_NotImplemented) {
        return answer;
    }
    Py_DECREF(answer);
    return compute(binding, args, nargs, kwnames, NULL);
}
