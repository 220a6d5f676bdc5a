/*
 * puzzle_solutions.cu  An answer for each puzzle of gpuopt/lab/puzzles.py, in its order.
 */
__global__ void
add_one(const float *x, float *y, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = x[i] + 1.0f;
    }
}

__global__ void
saxpy(float a, const float *x, const float *y, float *z, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * blockDim.x) {
        z[i] = a * x[i] + y[i];
    }
}

__global__ void
add_rows(const float *x, const float *row, float *y, int rows, int cols)
{
    const int c = blockIdx.x * blockDim.x + threadIdx.x;
    const int r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r < rows && c < cols) {
        y[r * cols + c] = x[r * cols + c] + row[c];
    }
}

__global__ void
reverse(float *x)
{
    __shared__ float tile[64];
    const int i = blockIdx.x * 64 + threadIdx.x;
    tile[threadIdx.x] = x[i];
    __syncthreads();
    x[i] = tile[63 - threadIdx.x];
}

__global__ void
neighbours(const float *x, float *y, int n)
{
    __shared__ float tile[66];
    const int t = threadIdx.x, i = blockIdx.x * 64 + t;
    tile[t + 1] = i < n ? x[i] : 0.0f;
    if (t == 0) {
        tile[0] = i > 0 ? x[i - 1] : 0.0f;
    }
    if (t == 63) {
        tile[65] = i + 1 < n ? x[i + 1] : 0.0f;
    }
    __syncthreads();
    if (i < n) {
        y[i] = tile[t] + tile[t + 1] + tile[t + 2];
    }
}

__global__ void
histogram(const int *x, int *count, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        atomicAdd(&count[x[i]], 1);
    }
}

__global__ void
block_sums(const float *x, float *sums)
{
    __shared__ float s[128];
    const int t = threadIdx.x;
    s[t] = x[blockIdx.x * 128 + t];
    __syncthreads();
    for (int half = 64; half > 0; half /= 2) {
        if (t < half) {
            s[t] += s[t + half];
        }
        __syncthreads();
    }
    if (t == 0) {
        sums[blockIdx.x] = s[0];
    }
}

__global__ void
warp_sums(const float *x, float *sums)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = x[i];
    for (int step = 16; step > 0; step /= 2) {
        sum += __shfl_down_sync(0xffffffffu, sum, step);
    }
    if (i % 32 == 0) {
        sums[i / 32] = sum;
    }
}

__global__ void
max_of_rows(const int *x, int *largest, int cols)
{
    const int *row = x + (long long)blockIdx.x * cols;
    int most = INT_MIN;
    for (int c = threadIdx.x; c < cols; c += 32) {
        most = max(most, row[c]);
    }
    most = __reduce_max_sync(0xffffffffu, most);
    if (threadIdx.x == 0) {
        largest[blockIdx.x] = most;
    }
}

__global__ void
transposed(const float *x, float *y, int rows, int cols)
{
    __shared__ float tile[32][33]; /* 32 would put a whole column into one bank */
    const int column = blockIdx.x * 32, row = blockIdx.y * 32;
    tile[threadIdx.y][threadIdx.x] =
        x[(row + threadIdx.y) * cols + column + threadIdx.x];
    __syncthreads();
    y[(column + threadIdx.y) * rows + row + threadIdx.x] =
        tile[threadIdx.x][threadIdx.y];
}

__global__ void
total(const int *x, int *total, int n)
{
    int sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * blockDim.x) {
        sum += x[i];
    }
    sum = __reduce_add_sync(0xffffffffu, sum);
    if (threadIdx.x % 32 == 0) {
        atomicAdd(total, sum);
    }
}

__global__ void
scan(const int *x, int *y, int *state)
{
    __shared__ int s[64], number, before;
    const int t = threadIdx.x;
    if (t == 0) {
        number = atomicAdd(&state[0], 1); /* the order in which blocks begin */
    }
    __syncthreads();
    const int i = number * 64 + t;
    s[t] = x[i];
    __syncthreads();
    for (int step = 1; step < 64; step *= 2) {
        const int left = t >= step ? s[t - step] : 0;
        __syncthreads();
        s[t] += left;
        __syncthreads();
    }
    if (t == 0) {
        int *sums = state + 1, *ready = state + 1 + gridDim.x;
        before = 0;
        if (number > 0) {
            while (atomicAdd(&ready[number - 1], 0) == 0) {
            }
            __threadfence();
            before = sums[number - 1];
        }
        sums[number] = before + s[63];
        __threadfence(); /* the sum before the flag */
        atomicExch(&ready[number], 1);
    }
    __syncthreads();
    y[i] = before + s[t];
}
