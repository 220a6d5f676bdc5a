/*
 * plan.c  gpuopt.plan(): the steps of a call up to the choice of a variant, reported as
 * a dict.
 */
#include "call.h"

#include "array.h"
#include "rates.h"

/* A list of (shape, dtype). */
static PyObject *
describe_outputs(const frame *f)
{
    PyObject *outputs = PyList_New(0);
    for (int i = 0; outputs && i < f->call.nout; i++) {
        const gpo_array *out = &f->call.out[i];
        const gpo_dtype dtype = f->caller_object[i] ? f->caller_dtype[i] : out->dtype;
        PyObject *row = Py_BuildValue("(Ns)", gpo_shape_tuple(out->ndim, out->shape),
                                      gpo_dtypes[dtype].name);
        if (!row || PyList_Append(outputs, row) < 0) {
            Py_CLEAR(outputs);
        }
        Py_XDECREF(row);
    }
    return outputs;
}

/* The estimates for host arrays, in milliseconds; None where there is none. */
static PyObject *
describe_estimate(const frame *f)
{
    if (f->like->family != GPO_HOST || gpo_rates_device() < 0) {
        return Py_BuildValue("(OO)", Py_None, Py_None);
    }
    const gpo_estimate e =
        gpo_rates_estimate(&f->call, (int)(f->binding - gpo_bindings));
    return Py_BuildValue("(dd)", 1e3 * e.cpu, 1e3 * e.device);
}

/* The dict that plan() returns for a prepared call. */
static PyObject *
describe(const frame *f, const gpo_cost *cost)
{
    PyObject *outputs = describe_outputs(f);
    PyObject *times = describe_estimate(f);
    PyObject *answer = NULL;
    if (outputs && times) {
        answer = Py_BuildValue("{s:s,s:s,s:s,s:d,s:d,s:d,s:O,s:O,s:O}", "backend",
                               f->call.backend->name, "variant", f->call.variant->name,
                               "why", f->why, "read_bytes", cost->read_bytes,
                               "written_bytes", cost->written_bytes, "flops",
                               cost->flops, "cpu_ms", PyTuple_GetItem(times, 0),
                               "gpu_ms", PyTuple_GetItem(times, 1), "outputs", outputs);
    }
    Py_XDECREF(outputs);
    Py_XDECREF(times);
    return answer;
}

PyObject *
gpo_op_plan(gpo_binding *binding, PyObject *const *args, Py_ssize_t nargs,
            PyObject *kwnames)
{
    PyObject *answer = NULL;
    frame *f = gpo_call_enter(binding);
    if (!f) {
        return NULL;
    }
    f->explains = true;
    if (gpo_call_prepare(f, args, nargs, kwnames)) {
        gpo_cost cost = {0, 0, 0};
        gpo_make_plan(&f->call);
        binding->op->cost(&f->call, &cost);
        for (int i = 0; i < GPO_MAX_IN; i++) {
            if (f->call.convert[i] != GPO_NONE) { /* so that choose() sees its dtype */
                f->call.in[i].dtype = f->call.convert[i];
            }
        }
        if (gpo_call_choose(f) && (!f->place->foresee || f->place->foresee(f))) {
            answer = describe(f, &cost);
        }
    }
    gpo_call_leave(f);
    return answer;
}
