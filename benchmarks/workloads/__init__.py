"""One file per operator: its problems by name.  gpuopt.lab.workloads finds them."""
