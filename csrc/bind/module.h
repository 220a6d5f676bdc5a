/*
 * module.h  Functions that add the functions and classes of each file to the module; -1
 * on failure.
 */
#ifndef GPO_MODULE_H
#define GPO_MODULE_H

#include "bind.h"

int gpo_introspect_init(PyObject *module);
int gpo_sim_py_init(PyObject *module);
int gpo_device_array_init(PyObject *module);
int gpo_asdevice_init(PyObject *module);
int gpo_stream_init(PyObject *module);
int gpo_last_call_init(PyObject *module);
int gpo_use_init(PyObject *module);
int gpo_rates_init(PyObject *module);
int gpo_known_init(PyObject *module);

#endif
