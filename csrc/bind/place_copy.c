/*
 * place_copy.c  Calls on host memory by a backend with device memory: the inputs are
 * copied to the device and the results back, and the call waits for them.  The other
 * steps are those of place_host.c.  Order: place, to the device, back, run.
 */
#include "place_host.h"

#include "array.h"
#include "choose.h"
#include "run.h"

/* ---- place ---- */

/* Whether a view spans more than twice its elements. */
static bool
is_sparse(const gpo_array *in)
{
    if (!in->present) {
        return false;
    }
    int64_t low, high;
    gpo_array_extent(in, &low, &high);
    return high - low > 2 * in->size * gpo_dtypes[in->dtype].bytes;
}

/* Packed inputs need a new plan, and may get another variant. */
static bool
choose_packed(frame *f)
{
    gpo_make_plan(&f->call);
    return gpo_choose_again(f);
}

/*
 * A copy on the device keeps the caller's strides, so that a rung sees them; a view
 * that spans more than twice its elements is packed first.
 */
static bool
pack_inputs(frame *f)
{
    for (int i = 0; i < f->binding->narrays; i++) {
        gpo_array *in = &f->call.in[i];
        if (!is_sparse(in)) {
            continue;
        }
        PyArrayObject *packed = (PyArrayObject *)PyArray_NewCopy(f->in[i], NPY_CORDER);
        if (!packed) {
            return false;
        }
        Py_DECREF((PyObject *)f->in[i]);
        f->in[i] = packed;
        in->data = PyArray_DATA(packed);
        f->packed = true;
        gpo_array_contiguous(&f->call.error, in);
    }
    return !f->packed || choose_packed(f);
}

static bool
foresee(frame *f)
{
    bool any = false;
    for (int i = 0; i < f->binding->narrays; i++) {
        gpo_array *in = &f->call.in[i];
        if (is_sparse(in)) {
            any = true;
            gpo_array_contiguous(&f->call.error, in);
        }
    }
    return !any || choose_packed(f);
}

static bool
place(frame *f)
{
    return gpo_host_place(f) && pack_inputs(f);
}

/* ---- to the device ---- */

/* The device's memory for each array, NULL where there is none. */
typedef struct copies {
    void *memory[GPO_MAX_ARRAYS];
    void *host[GPO_MAX_OUT]; /* the destinations of the results */
} copies;

static gpo_status
upload_inputs(gpo_call *call, copies *c)
{
    enum { ALIGNMENT = 16 }; /* addresses keep their offset modulo the widest load */
    gpo_status status = GPO_OK;
    for (int i = 0; i < GPO_MAX_IN && !status; i++) {
        gpo_array *in = &call->in[i];
        if (!in->present || in->size == 0) {
            continue;
        }
        int64_t low, high;
        gpo_array_extent(in, &low, &high);
        const char *first = (const char *)in->data + low;
        const size_t offset = (uintptr_t)first % ALIGNMENT;
        status =
            call->backend->alloc(call, (size_t)(high - low) + offset, &c->memory[i]);
        if (!status) {
            char *to = (char *)c->memory[i] + offset;
            status = call->backend->upload(call, to, first, (size_t)(high - low));
            in->data = to - low;
        }
    }
    return status;
}

static size_t
bytes_of(const gpo_array *array)
{
    return (size_t)array->size * (size_t)gpo_dtypes[array->dtype].bytes;
}

static gpo_status
alloc_outputs(gpo_call *call, copies *c)
{
    gpo_status status = GPO_OK;
    for (int i = 0; i < call->nout && !status; i++) {
        gpo_array *out = &call->out[i];
        c->host[i] = out->data;
        if (out->size > 0) {
            status =
                call->backend->alloc(call, bytes_of(out), &c->memory[GPO_MAX_IN + i]);
            out->data = c->memory[GPO_MAX_IN + i];
        }
    }
    return status;
}

/* Before the kernel: uploads the inputs and allocates the results. */
static gpo_status
send(gpo_call *call, gpo_backend_id id, copies *c, gpo_timer *t)
{
    gpo_status status = gpo_timer_start(t, call, id);
    if (!status) {
        status = upload_inputs(call, c);
    }
    if (!status) {
        status = gpo_timer_mark(t, call, MARK_UPLOADED);
    }
    if (!status) {
        status = alloc_outputs(call, c);
    }
    return status;
}

/* ---- back ---- */

/* After the kernel: downloads the results and waits for them. */
static gpo_status
fetch(gpo_call *call, const copies *c, const gpo_timer *t)
{
    gpo_status status = gpo_timer_mark(t, call, MARK_RUN);
    for (int i = 0; i < call->nout && !status; i++) {
        const gpo_array *out = &call->out[i];
        if (out->size > 0) {
            status =
                call->backend->download(call, c->host[i], out->data, bytes_of(out));
        }
    }
    if (!status) {
        status = gpo_timer_mark(t, call, MARK_DOWNLOADED);
    }
    if (!status) {
        status = call->backend->wait(call);
    }
    return status;
}

static void
free_copies(gpo_call *call, const copies *c)
{
    for (int k = 0; k < GPO_MAX_ARRAYS; k++) {
        if (c->memory[k]) {
            call->backend->free(call, c->memory[k]);
        }
    }
}

/* ---- run ---- */

static bool
run(frame *f)
{
    gpo_call *call = &f->call;
    gpo_last last = gpo_unmeasured;
    copies c = {.memory = {NULL}};
    gpo_timer t;
    if (!gpo_let_go(f)) {
        return false;
    }
    gpo_status status = call->backend->begin(call);
    if (!status) {
        status = send(call, f->id, &c, &t);
        if (!status) {
            status = call->variant->run[call->in[call->op->by].dtype](call);
        }
        if (!status) {
            status = fetch(call, &c, &t);
        }
        status = gpo_timer_finish(&t, call, status, &last);
        free_copies(call, &c);
        call->backend->end(call);
    }
    gpo_take_back();
    return gpo_run_end(f, status, &last);
}

const gpo_placement gpo_place_copy = {
    .wrap = gpo_host_wrap,
    .check_out = gpo_host_check_out,
    .convert = gpo_host_convert,
    .foresee = foresee,
    .place = place,
    .run = run,
    .result = gpo_host_result,
};
