/*
 * parse.c  The names and defaults of the operators' arguments, and the arguments of one
 * call.  Order: the operators, names and defaults, arguments by position and keyword,
 * options.
 * See options.c for reading one option, take.c for arrays.
 */
#include "parse.h"

#include "call.h"
#include "options.h"

#include <stdlib.h>
#include <string.h>

/* ---- the operators ---- */

#define OP(name, ladder) extern const gpo_op op_##name;
#include "../ops/ops.def"
#undef OP

gpo_binding gpo_bindings[GPO_NOPS] = {
#define OP(name, ladder) {.op = &op_##name},
#include "../ops/ops.def"
#undef OP
};

gpo_binding *
gpo_binding_find(PyObject *name)
{
    if (!PyUnicode_Check(name)) {
        PyErr_Format(PyExc_TypeError, "operator must be str, not %R",
                     (PyObject *)Py_TYPE(name));
        return NULL;
    }
    for (int i = 0; i < GPO_NOPS; i++) {
        if (PyUnicode_CompareWithASCIIString(name, gpo_bindings[i].op->name) == 0) {
            return &gpo_bindings[i];
        }
    }
    for (int i = 0; i < GPO_NOPS; i++) {
        const char *ladder = gpo_bindings[i].op->ladder;
        if (ladder && PyUnicode_CompareWithASCIIString(name, ladder) == 0) {
            return &gpo_bindings[i];
        }
    }
    PyErr_Format(PyExc_ValueError, "there is no operator %R; see gpuopt.ops()", name);
    return NULL;
}

/* ---- names and defaults ---- */

static const char *const common_names[NCOMMON] = {
    [COMMON_OUT] = "out",
    [COMMON_VARIANT] = "variant",
    [COMMON_BACKEND] = "backend",
    [COMMON_STREAM] = "stream",
};

/* The value of a default's Python text: None, True, False, 'word' or a number. */
static void
read_preset(const gpo_arg *arg, gpo_option *out)
{
    memset(out, 0, sizeof *out);
    if (!arg->preset || strcmp(arg->preset, "None") == 0) {
        return;
    }
    out->given = true;
    switch (arg->kind) {
        case GPO_KIND_BOOL:
            out->i = strcmp(arg->preset, "True") == 0;
            break;
        case GPO_KIND_ENUM:
            while (arg->choices[out->i] &&
                   (strncmp(arg->preset + 1, arg->choices[out->i],
                            strlen(arg->choices[out->i])) != 0 ||
                    arg->preset[1 + strlen(arg->choices[out->i])] != '\'')) {
                out->i++;
            }
            break;
        case GPO_KIND_INTS:
            out->i = 1;
            out->ints[0] = strtoll(arg->preset, NULL, 10);
            break;
        case GPO_KIND_FLOATS:
            out->i = 1;
            out->floats[0] = strtod(arg->preset, NULL);
            break;
        default:
            out->i = strtoll(arg->preset, NULL, 10);
            out->f = strtod(arg->preset, NULL);
            out->is_int = !strpbrk(arg->preset, ".einf");
            break;
    }
}

int
gpo_binding_fill(gpo_binding *b)
{
    int n = 0;
    while (b->op->args[n].name) {
        b->name[n] = PyUnicode_InternFromString(b->op->args[n].name);
        if (!b->name[n]) {
            return -1;
        }
        b->narrays += b->op->args[n].kind == GPO_KIND_ARRAY;
        read_preset(&b->op->args[n], &b->preset[n]);
        n++;
    }
    b->nargs = n;
    for (int k = 0; k < NCOMMON; k++) {
        b->name[n + k] = PyUnicode_InternFromString(common_names[k]);
        if (!b->name[n + k]) {
            return -1;
        }
    }
    return 0;
}

/* ---- arguments by position and keyword, in CPython's words ---- */

static int
find_argument(const gpo_binding *b, PyObject *name)
{
    const int total = b->nargs + NCOMMON;
    for (int i = 0; i < total; i++) {
        if (b->name[i] == name) {
            return i;
        }
    }
    for (int i = 0; i < total; i++) { /* a name that was not interned */
        if (PyUnicode_Compare(b->name[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

static bool
parse_arguments(frame *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    const gpo_binding *b = f->binding;
    const gpo_arg *arg = b->op->args;
    const int total = b->nargs + NCOMMON;
    int positional = b->nargs + 1; /* the operator's own arguments, and out */
    int required = 0;
    for (int i = 0; i < b->nargs; i++) {
        positional -= arg[i].named;
    }
    while (arg[required].name && !arg[required].preset) {
        required++;
    }
    if (nargs > positional) {
        PyErr_Format(PyExc_TypeError,
                     "%s() takes from %d to %d positional arguments but %zd were given",
                     b->op->name, required, positional, nargs);
        return false;
    }
    for (int i = 0, k = 0; i < total; i++) {
        const bool by_place = k < nargs && !(i < b->nargs && arg[i].named);
        f->value[i] = by_place ? args[k++] : NULL;
    }
    const Py_ssize_t nkeywords = kwnames ? PyTuple_Size(kwnames) : 0;
    for (Py_ssize_t k = 0; k < nkeywords; k++) {
        PyObject *name = PyTuple_GetItem(kwnames, k);
        const int i = find_argument(b, name);
        if (i < 0) {
            PyErr_Format(PyExc_TypeError,
                         "%s() got an unexpected keyword argument '%U'", b->op->name,
                         name);
            return false;
        }
        if (f->value[i]) {
            PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%U'",
                         b->op->name, name);
            return false;
        }
        f->value[i] = args[nargs + k];
    }
    for (int i = 0; i < required; i++) {
        if (!f->value[i]) {
            PyErr_Format(PyExc_TypeError,
                         "%s() missing required argument '%s' (pos %d)", b->op->name,
                         arg[i].name, i + 1);
            return false;
        }
    }
    return true;
}

/* ---- options ---- */

static bool
parse_options(frame *f)
{
    const gpo_binding *b = f->binding;
    for (int i = b->narrays; i < b->nargs; i++) {
        gpo_option *out = &f->call.opt[i];
        PyObject *object = f->value[i];
        const char *preset_text = b->op->args[i].preset; /* NULL: required */
        const bool none =
            object == Py_None && preset_text && strcmp(preset_text, "None") == 0;
        if (!object || none) {
            const gpo_option *preset = &b->preset[i];
            out->given = preset->given;
            out->is_int = preset->is_int;
            out->i = preset->i;
            out->f = preset->f;
            out->is_tuple = false;
            out->ints[0] = preset->ints[0]; /* a default is at most one number */
        }
        else if (!gpo_option_parse(object, b->op->name, &b->op->args[i], out)) {
            return false;
        }
    }
    return true;
}

bool
gpo_parse(frame *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return parse_arguments(f, args, nargs, kwnames) && parse_options(f);
}
