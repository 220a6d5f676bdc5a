/*
 * sim_py.c  The simulator's settings and reports as Python functions.
 */
#include "bind.h"

int
gpo_sim_py_init(PyObject *module)
{
    (void)module;
    return 0;
}
