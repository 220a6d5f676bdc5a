/*
 * choice.cuh  The kernel that a call of scan runs on CUDA, see choice.cu.
 */
#ifndef GPO_SCAN_CHOICE_CUH
#define GPO_SCAN_CHOICE_CUH

#include "scan.h"

/* The rows of the table in cuda.cu, from v2 on. */
enum scan_kernel {
    V2 = 2,
    V3,
    V4,
    V5,
    SHORT_ROWS,
    COLUMNS,
    WALKED_COLUMNS,
    WARP_ROWS,
    CLUSTER_ROWS,
    ONE_WAVE,
    ONE_ELEMENT
};

/* What cluster_rows needs of a device. */
constexpr const char *CLUSTER_NEEDS = "sm_90a";

/* The kernel for the call, and why. */
scan_kernel choose_scan(const gpo_call *call, char why[GPO_MESSAGE]);

#endif
