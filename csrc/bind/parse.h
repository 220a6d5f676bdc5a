/*
 * parse.h  What operators are called with: names, defaults, arguments.
 */
#ifndef GPO_PARSE_H
#define GPO_PARSE_H

#include "bind.h"

struct frame;

/* Arguments every operator takes after its own; `out` may also come by position. */
enum { COMMON_OUT, COMMON_VARIANT, COMMON_BACKEND, COMMON_STREAM, NCOMMON };

/* What the binding adds to a descriptor: names to compare, defaults, documentation. */
typedef struct gpo_binding {
    const gpo_op *op;
    int nargs, narrays;
    PyObject *name[GPO_MAX_ARGS + NCOMMON]; /* interned; the common ones last */
    gpo_option preset[GPO_MAX_ARGS];
    char *doc; /* "name(signature)\n--\n\n" and the room's doc.txt */
} gpo_binding;

/* The place of each operator in gpo_bindings: GPO_OP_reduce. */
enum {
#define OP(name, ladder) GPO_OP_##name,
#include "../ops/ops.def"
#undef OP
    GPO_NOPS
};

extern gpo_binding gpo_bindings[GPO_NOPS];

/* Fills a binding, once at import; -1 with an exception set. */
int gpo_binding_fill(gpo_binding *b);

/*
 * The binding called `name`, or the first one of the ladder called so; NULL with
 * ValueError set if there is none.
 */
gpo_binding *gpo_binding_find(PyObject *name);

/*
 * Sets f->value by the arguments of a call, by position and keyword, then reads the
 * options among them, which may run any Python code.  False with an exception set.
 */
bool gpo_parse(struct frame *f, PyObject *const *args, Py_ssize_t nargs,
               PyObject *kwnames);

#endif
