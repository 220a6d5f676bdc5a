/*
 * sim.c  Loads the simulator: two shared objects beside the extension module, plain and
 * instrumented, of which the settings select one.
 * Order: settings, fork, the environment, loading, functions for backend.c.
 */
#define _GNU_SOURCE /* dladdr */
#include "sim.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- settings ---- */

const char *const gpo_sim_schedules[GPO_SIM_NSCHEDULES] = {
    "ascending", "descending", "shuffle", "preempt", "lockstep"};

typedef struct library {
    const char *file;
    bool tried;
    const gpo_sim_library *entry;
    char reason[256];
} library;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static library plain = {.file = "_sim.so"};
static library instrumented = {.file = "_sim_profile.so"};
static bool configured;
static char bad_environment[160];
static gpo_sim_config config = {.seed = 1, .fail_after = -1};

/* ---- fork: all locks are held, so that the child's state is consistent ---- */

/* Takes the locks in the same order as gpo_sim_set_config. */
static void
hold(void)
{
    pthread_mutex_lock(&lock);
    if (plain.entry) {
        plain.entry->hold();
    }
    if (instrumented.entry) {
        instrumented.entry->hold();
    }
}

static void
let_go(void)
{
    if (instrumented.entry) {
        instrumented.entry->let_go();
    }
    if (plain.entry) {
        plain.entry->let_go();
    }
    pthread_mutex_unlock(&lock);
}

/* With `lock` held. */
static void
watch_forks(void)
{
    static bool watched;
    if (!watched) {
        watched = pthread_atfork(hold, let_go, let_go) == 0;
    }
}

/* ---- the environment ---- */

/* With `lock` held. */
static void
read_environment(void)
{
    const char *wanted = getenv("GPUOPT_SIM");
    watch_forks();
    if (!configured && wanted && strcmp(wanted, "check") == 0) {
        config.checks = true;
    }
    else if (!configured && wanted && *wanted && strcmp(wanted, "plain") != 0) {
        snprintf(bad_environment, sizeof bad_environment,
                 "GPUOPT_SIM must be 'plain' or 'check', not '%.100s'", wanted);
    }
    configured = true;
}

/* ---- loading ---- */

/* The path of a file beside this module; false if it does not fit. */
static bool
beside_module(const char *file, char *path, size_t size)
{
    Dl_info info;
    if (!dladdr((const void *)&gpo_sim_schedules, &info) || !info.dli_fname) {
        return false;
    }
    const char *slash = strrchr(info.dli_fname, '/');
    const int folder = slash ? (int)(slash - info.dli_fname + 1) : 0;
    const int n = snprintf(path, size, "%.*s%s", folder, info.dli_fname, file);
    return n >= 0 && (size_t)n < size;
}

/* With `lock` held. */
static void
load(library *l)
{
    char path[4096];
    l->tried = true;
    if (!beside_module(l->file, path, sizeof path)) {
        snprintf(l->reason, sizeof l->reason, "the module's own folder is unknown");
        return;
    }
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *error = dlerror();
        snprintf(l->reason, sizeof l->reason, "the simulator cannot be loaded: %.200s",
                 error ? error : path);
        return;
    }
    const gpo_sim_library *entry = dlsym(handle, "gpo_sim_entry");
    if (!entry || entry->record_bytes != sizeof(gpo_sim_record)) {
        snprintf(l->reason, sizeof l->reason, "%s belongs to another build of gpuopt",
                 l->file);
        dlclose(handle);
        return;
    }
    entry->configure(&config);
    l->entry = entry; /* never unloaded: its arrays may outlive every call */
}

static library *
selected(void)
{
    read_environment();
    const bool instruments =
        config.checks || config.profile || config.schedule == GPO_SIM_LOCKSTEP;
    return instruments ? &instrumented : &plain;
}

const gpo_sim_library *
gpo_sim_loaded(const char **reason)
{
    pthread_mutex_lock(&lock);
    library *l = selected();
    if (bad_environment[0]) {
        pthread_mutex_unlock(&lock);
        *reason = bad_environment;
        return NULL;
    }
    if (!l->tried) {
        load(l);
    }
    pthread_mutex_unlock(&lock);
    *reason = l->entry ? NULL : l->reason;
    return l->entry;
}

void
gpo_sim_get_config(gpo_sim_config *out)
{
    pthread_mutex_lock(&lock);
    read_environment();
    *out = config;
    pthread_mutex_unlock(&lock);
}

void
gpo_sim_set_config(const gpo_sim_config *wanted)
{
    pthread_mutex_lock(&lock);
    configured = true;
    config = *wanted;
    if (plain.entry) {
        plain.entry->configure(&config);
    }
    if (instrumented.entry) {
        instrumented.entry->configure(&config);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- functions for backend.c ---- */

static const char *
unavailable(void)
{
    const char *reason;
    gpo_sim_loaded(&reason);
    return reason;
}

static const gpo_backend none = {
    .name = "sim", .device_memory = true, .unavailable = unavailable};

const gpo_backend *
gpo_sim_backend(void)
{
    const char *reason;
    const gpo_sim_library *l = gpo_sim_loaded(&reason);
    return l ? l->backend : &none;
}

const gpo_table *
gpo_sim_table(const char *ladder)
{
    const char *reason;
    const gpo_sim_library *l = gpo_sim_loaded(&reason);
    return l ? l->table(ladder) : NULL;
}

const char *
gpo_sim_lacks(const gpo_op *op)
{
    const char *reason;
    const gpo_sim_library *l = gpo_sim_loaded(&reason);
    return !l || l->table(op->ladder ? op->ladder : op->name)
               ? NULL
               : "this build's simulator lacks its kernels; `make build` adds them";
}
