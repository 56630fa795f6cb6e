// Shapes of the witness in their own words (see witness_shapes.py): a line with name and space of launches, sizes of arrays (x = n) and
// views (p -> u + 2) where they are not the usual ones; then the body, whose parameters are the names that it uses.

// added_beside: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = t; i < n; i += gridDim.x * blockDim.x) {
        v[i] = 2.0 * u[i];
    }
    for (int j = 0; j < m; j++) {
        atomicAdd(&y[j], c[j]);
    }
}

// two_loops: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = t; i < n; i += gridDim.x * blockDim.x) {
        v[i] = 2.0 * u[i];
    }
    for (int i = t; i < n; i += gridDim.x * blockDim.x) {
        x[i] = u[i] + 2.0 * u[(i + 1) % n];
    }
}

// two_loops_of_two_sizes: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = t; i < n; i += gridDim.x * blockDim.x) {
        v[i] = 2.0 * u[i];
    }
    for (int i = t; i < m; i += gridDim.x * blockDim.x) {
        y[i] = c[i] + 2.0 * c[(i + 1) % m];
    }
}

// one_of_two_added: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = t; i < n; i += gridDim.x * blockDim.x) {
        v[i] = 2.0 * u[i];
        atomicAdd(&s[0], c[i % m]);
    }
    for (int i = t; i < n; i += gridDim.x * blockDim.x) {
        x[i] = u[i] * c[0];
    }
}

// loop_in_guard: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (m > 2) {
        for (int i = t; i < n; i += gridDim.x * blockDim.x) {
            v[i] = u[i] + u[(i + 1) % n];
        }
    }
}

// loop_of_half_the_threads: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t % 2 == 0) {
        for (int i = t; i < n; i += gridDim.x * blockDim.x) {
            atomicAdd(&v[i], u[i] + 2.0 * u[(i + 1) % n]);
        }
    }
}

// loop_twice_a_thread: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    for (int h = 0; h < 2; h++) {
        for (int i = t; i < n; i += gridDim.x * blockDim.x) {
            v[i] += u[i] + 2.0 * u[(i + 1) % n];
        }
    }
}

// loop_times_m: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    for (int h = 0; h < m; h++) {
        for (int i = t; i < n; i += gridDim.x * blockDim.x) {
            v[i] += c[h] * u[(i + h) % n];
        }
        atomicAdd(&y[h], c[h]);
    }
}

// items_times_m: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = t; i < n; i += gridDim.x * blockDim.x) {
        for (int h = 0; h < m; h++) {
            v[i] += c[h] * u[(i + h) % n];
        }
    }
    z[t] = c[0];
}

// loop_step_of_one_block: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = t; i < n; i += blockDim.x) {
        atomicAdd(&s[0], u[i]);
    }
}

// loop_from_one: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = t + 1; i < n - 1; i += gridDim.x * blockDim.x) {
        v[i] = u[i - 1] + 2.0 * u[i + 1];
    }
}

// loop_from_one_edges_by_first: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = t + 1; i < n - 1; i += gridDim.x * blockDim.x) {
        v[i] = u[i - 1] + 2.0 * u[i + 1];
    }
    if (t == 0 && n > 1) {
        v[0] = u[1];
        v[n - 1] = 3.0 * u[n - 2];
    }
}

// loop_to_and_with: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = t; i <= n - 1; i += gridDim.x * blockDim.x) {
        v[i] = u[i] + 2.0 * u[n - 1 - i];
    }
}

// loop_over_pairs_of_items: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = 2 * t; i < n; i += 2 * gridDim.x * blockDim.x) {
        v[i] = u[i];
        if (i + 1 < n) {
            v[i + 1] = 2.0 * u[i + 1] + u[i];
        }
    }
}

// loop_left_early: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = t; i < n; i += gridDim.x * blockDim.x) {
        if (i >= m) {
            break;
        }
        v[i] = 2.0 * u[i];
        atomicAdd(&y[0], c[0]);
    }
}

// item_left_out: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = t; i < n; i += gridDim.x * blockDim.x) {
        if (i % 2 == 1) {
            continue;
        }
        v[i] = 2.0 * u[i] + u[(i + 1) % n];
    }
}

// head_of_the_grid_overwrites: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = t; i < n; i += gridDim.x * blockDim.x) {
        v[i] = 2.0 * u[i] + u[(i + 1) % n];
    }
    if (t == 0) {
        s[0] = s[0] * 2.0;
    }
}

// step_by_a_number: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    int step = gridDim.x * blockDim.x;
    for (int i = t; i < n; i += step) {
        v[i] = u[i] + 2.0 * u[(i + 1) % n];
    }
}

// trips_counted: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    int trips = (n - t + gridDim.x * blockDim.x - 1) / (gridDim.x * blockDim.x);
    for (int h = 0; h < trips; h++) {
        int i = t + h * gridDim.x * blockDim.x;
        v[i] = u[i] + 2.0 * u[(i + 1) % n];
        atomicAdd(&y[0], c[0]);
    }
}

// blocks_add_their_row: rows, x = n, A = n * m
{
    int r = blockIdx.x;
    if (r < n) {
        for (int j = threadIdx.x; j < m; j += blockDim.x) {
            atomicAdd(&x[r], A[r * m + j] * c[j]);
        }
    }
}

// row_and_its_head: rows, x = n, p = n
{
    int r = blockIdx.x;
    if (r < n) {
        for (int j = threadIdx.x; j < m; j += blockDim.x) {
            v[r * m + j] = u[r * m + j] * p[r];
        }
        if (threadIdx.x == 0) {
            x[r] = 2.0 * p[r];
        }
    }
}

// row_and_addition_a_thread: rows, x = n, p = n
{
    int r = blockIdx.x;
    if (r < n) {
        for (int j = threadIdx.x; j < m; j += blockDim.x) {
            v[r * m + j] = 2.0 * u[r * m + j];
        }
        atomicAdd(&x[r], p[r]);
    }
}

// rows_loop_and_addition_a_thread: rows, x = n, p = n
{
    for (int r = blockIdx.x; r < n; r += gridDim.x) {
        for (int j = threadIdx.x; j < m; j += blockDim.x) {
            v[r * m + j] = 2.0 * u[r * m + j];
        }
        atomicAdd(&x[r], p[r]);
    }
}

// rows_loop_between: rows, p = n
{
    for (int r = blockIdx.x; r < n; r += gridDim.x) {
        double g = p[r];
        for (int j = threadIdx.x; j < m; j += blockDim.x) {
            v[r * m + j] = g * u[r * m + j];
        }
    }
}

// rows_loop_normalised: rows
{
    for (int r = blockIdx.x; r < n; r += gridDim.x) {
        double g = 0;
        for (int j = 0; j < m; j++) {
            g += u[r * m + j];
        }
        for (int j = threadIdx.x; j < m; j += blockDim.x) {
            v[r * m + j] = g * u[r * m + j];
        }
    }
}

// five_points: plane
{
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r > 0 && r < n - 1 && j > 0 && j < m - 1) {
        int i = r * m + j;
        v[i] = u[i - 1] + 2.0 * u[i + 1] + 3.0 * u[i - m] + 4.0 * u[i + m];
    }
}

// five_points_wrapped: plane
{
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r < n && j < m) {
        v[r * m + j] = u[r * m + (j + 1) % m] + 2.0 * u[(r + n - 1) % n * m + j];
    }
}

// five_points_clamped: plane
{
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r < n && j < m) {
        v[r * m + j] = u[r * m + min(j + 1, m - 1)] + 2.0 * u[max(r - 1, 0) * m + j];
    }
}

// five_points_loops: plane
{
    for (int r = blockIdx.y * blockDim.y + threadIdx.y + 1; r < n - 1; r += gridDim.y * blockDim.y) {
        for (int j = blockIdx.x * blockDim.x + threadIdx.x; j < m; j += gridDim.x * blockDim.x) {
            v[r * m + j] = u[(r - 1) * m + j] + 2.0 * u[(r + 1) * m + j] + 3.0 * u[r * m + (j + 1) % m];
        }
    }
}

// transposed: plane
{
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r < n && j < m) {
        v[j * n + r] = 2.0 * u[r * m + j];
    }
}

// sum_of_columns: plane
{
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r < n && j < m) {
        atomicAdd(&y[j], u[r * m + j] * c[j]);
    }
}

// outer_product: plane, p = n
{
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r < n && j < m) {
        v[r * m + j] = p[r] * c[j];
    }
}

// matrix_product: plane, u = n * n, A = n * m
{
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r < n && j < m) {
        double f = 0;
        for (int k = 0; k < n; k++) {
            f += u[r * n + k] * A[k * m + j];
        }
        v[r * m + j] = f;
    }
}

// matrix_product_row_a_block: rows, u = n * n, A = n * m
{
    int r = blockIdx.x;
    if (r < n) {
        for (int j = threadIdx.x; j < m; j += blockDim.x) {
            double f = 0;
            for (int k = 0; k < n; k++) {
                f += u[r * n + k] * A[k * m + j];
            }
            v[r * m + j] = f;
        }
    }
}

// plane_and_row_tail: plane, x = n, p = n
{
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r < n && j < m) {
        v[r * m + j] = u[r * m + j] + u[r * m + (j + 1) % m];
    }
    if (j == 0 && r < n) {
        x[r] = 2.0 * p[r];
    }
}

// plane_loops_and_addition_a_thread: plane, x = n, p = n
{
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int r = blockIdx.y * blockDim.y + threadIdx.y;
    for (int k = r; k < n; k += gridDim.y * blockDim.y) {
        for (int i = j; i < m; i += gridDim.x * blockDim.x) {
            v[k * m + i] = 2.0 * u[k * m + i];
        }
        atomicAdd(&x[k], p[k]);
    }
    atomicAdd(&s[0], c[0]);
}

// line_on_x_loop_on_y: plane
{
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int r = blockIdx.y * blockDim.y + threadIdx.y;
    if (j < m) {
        for (int k = r; k < n; k += gridDim.y * blockDim.y) {
            v[k * m + j] = c[j] * u[k * m + j];
        }
    }
}

// line_on_x_tail_on_y: plane, x = n, p = n
{
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int r = blockIdx.y * blockDim.y + threadIdx.y;
    if (j < m && r == 0) {
        y[j] = c[j] + c[(j + 1) % m];
    }
    if (r < n) {
        atomicAdd(&x[r], p[r]);
    }
}

// y_ignored: plane
{
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int r = blockIdx.y * blockDim.y + threadIdx.y;
    if (j < m) {
        atomicAdd(&y[j], c[j] + 2.0 * c[(j + 1) % m]);
    }
}

// seven_points: cube
{
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int r = blockIdx.y * blockDim.y + threadIdx.y;
    int q = blockIdx.z * blockDim.z + threadIdx.z;
    if (q < n && r < m && j < l) {
        int i = (q * m + r) * l + j;
        double f = u[i];
        if (q > 0) {
            f += 2.0 * u[i - m * l];
        }
        if (r + 1 < m) {
            f += 3.0 * u[i + l];
        }
        if (j > 0) {
            f += 4.0 * u[i - 1];
        }
        v[i] = f;
    }
}

// layers_by_z: cube, A = n * n
{
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int r = blockIdx.y * blockDim.y + threadIdx.y;
    int q = blockIdx.z;
    if (q < n && r < m && j < l) {
        for (int k = 0; k < n; k++) {
            atomicAdd(&v[(k * m + r) * l + j], u[(q * m + r) * l + j] * A[q * n + k]);
        }
    }
}

// convolution_of_channels: plane, A = 3 * n * n
{
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int q = blockIdx.y * blockDim.y + threadIdx.y;
    if (q < n && j < m) {
        double f = 0;
        for (int o = 0; o < n; o++) {
            for (int k = 0; k < 3; k++) {
                int e = j + k - 1;
                if (e >= 0 && e < m) {
                    f += A[(q * n + o) * 3 + k] * u[o * m + e];
                }
            }
        }
        v[q * m + j] = f;
    }
}

// tile_with_halo: line
{
    __shared__ double tile[8];
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x + 1] = t < n ? u[t] : 0.0;
    if (threadIdx.x == 0) {
        tile[0] = t > 0 && t - 1 < n ? u[t - 1] : 0.0;
    }
    if (threadIdx.x == blockDim.x - 1) {
        tile[threadIdx.x + 2] = t + 1 < n ? u[t + 1] : 0.0;
    }
    __syncthreads();
    if (t < n) {
        v[t] = tile[threadIdx.x] + 2.0 * tile[threadIdx.x + 1] + 3.0 * tile[threadIdx.x + 2];
    }
}

// shared_taps: line
{
    __shared__ double taps[3];
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0) {
        for (int k = 0; k < 3; k++) {
            taps[k] = w[k];
        }
    }
    __syncthreads();
    for (int i = t; i < n; i += gridDim.x * blockDim.x) {
        double f = 0;
        for (int k = 0; k < 3; k++) {
            f += taps[k] * u[(i + k) % n];
        }
        v[i] = f;
    }
}

// shared_row: rows
{
    __shared__ double row[8];
    int r = blockIdx.x;
    for (int j = threadIdx.x; j < m; j += blockDim.x) {
        row[j] = r < n ? u[r * m + j] : 0.0;
    }
    __syncthreads();
    if (r < n) {
        for (int j = threadIdx.x; j < m; j += blockDim.x) {
            v[r * m + j] = row[j] * row[m - 1 - j];
        }
    }
}

// block_sum: line
{
    __shared__ double part[4];
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    double g = 0;
    for (int i = t; i < n; i += gridDim.x * blockDim.x) {
        g += u[i] * u[i];
    }
    part[threadIdx.x] = g;
    __syncthreads();
    if (threadIdx.x == 0) {
        double f = 0;
        for (int k = 0; k < blockDim.x; k++) {
            f += part[k];
        }
        atomicAdd(&s[0], f);
    }
}

// block_sum_and_addition: line, z = blocks
{
    __shared__ double part[4];
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    double g = 0;
    for (int i = t; i < n; i += gridDim.x * blockDim.x) {
        g += u[i];
        v[i] = u[(i + 1) % n];
    }
    part[threadIdx.x] = g;
    __syncthreads();
    if (threadIdx.x == 0) {
        double f = c[0];
        for (int k = 0; k < blockDim.x; k++) {
            f += part[k];
        }
        z[blockIdx.x] = f;
    }
}

// everybody_reads_in_a_loop: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < n) {
        double g = 0;
        for (int k = 0; k < m; k++) {
            g += c[k] * u[t];
        }
        v[t] = g;
    }
}

// everybody_reads_in_a_loop_and_adds: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < n) {
        for (int k = 0; k < m; k++) {
            atomicAdd(&y[k], A[k * n + t] * c[k]);
        }
    }
}

// aliased_reads: line, p -> u + 0
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < n) {
        v[t] = u[t] + 2.0 * p[(t + 1) % n];
    }
}

// view_in_place: line, x = 2 * n, u -> x + n
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < n) {
        x[t] = 2.0 * x[t] + u[t];
    }
}

// view_of_the_output: line, v = 2 * n + 1, u -> v + n, p -> v + n + 1
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = t; i < n; i += gridDim.x * blockDim.x) {
        v[i] = u[i] * 2.0 + p[i];
    }
}

// uncovered: line, v = threads + n, u = threads + n + 1
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    v[t] = u[t] + 2.0 * u[t + 1];
}

// offset_by_a_number: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t + m < n) {
        v[t] = u[t + m] + 2.0 * u[t];
    }
}

// offset_below: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < n) {
        v[t] = t >= m ? u[t - m] : 0.0;
    }
}

// strides_by_m: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t * m < n) {
        v[t * m] = 2.0 * u[t * m] + u[0];
    }
}

// red_and_black: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    int i = 2 * t + 1;
    if (i < n - 1) {
        x[i] = x[i - 1] + 2.0 * x[i + 1];
    }
}

// folded: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < n / 2) {
        v[t] = u[t] + 2.0 * u[n - 1 - t];
    }
}

// half_of_the_items: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < n && t % 2 == 0) {
        v[t] = u[t] + 2.0 * u[(t + 1) % n];
    }
}

// corners: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < n) {
        v[t] = u[t];
        if (t == 0) {
            v[t] += 2.0 * u[n - 1];
        }
        if (t == n - 1) {
            v[t] += 3.0 * u[0];
        }
    }
}

// upwind: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < n) {
        double f = mask[t] ? u[t] : u[(t + 1) % n];
        v[t] = f * f;
    }
}

// helmholtz_in_place: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = t; i < n; i += gridDim.x * blockDim.x) {
        v[i] += u[(i + 1) % n] - 2.0 * v[i];
    }
}

// counted_trips_of_rows: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    for (int h = 0; h < n; h++) {
        int i = h * gridDim.x * blockDim.x + t;
        if (i < n) {
            v[i] = u[i] + u[(i + 1) % n];
        }
        if (h == 0) {
            atomicAdd(&y[0], c[0]);
        }
    }
}

// everybody_adds_the_same: line
{
    for (int h = 0; h < m; h++) {
        atomicAdd(&y[h], 2.0 * c[h]);
    }
}

// everybody_adds_the_same_of_neighbours: line
{
    for (int h = 0; h < n; h++) {
        atomicAdd(&v[h], u[h] * u[(h + 1) % n]);
    }
}

// everybody_adds_the_same_in_two_loops: rows
{
    for (int r = 0; r < n; r++) {
        for (int j = 0; j < m; j++) {
            atomicAdd(&v[r * m + j], 2.0 * u[r * m + j]);
        }
    }
}

// blocks_add_the_same: line
{
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        atomicAdd(&v[i], u[i] + 2.0 * u[(i + 1) % n]);
    }
}

// lanes_add_the_same: line
{
    for (int i = blockIdx.x; i < n; i += gridDim.x) {
        atomicAdd(&v[i], u[i] + 2.0 * u[(i + 1) % n]);
    }
}

// lanes_add_the_same_in_rows: rows
{
    for (int r = blockIdx.x; r < n; r += gridDim.x) {
        for (int j = 0; j < m; j++) {
            atomicAdd(&v[r * m + j], 2.0 * u[r * m + j]);
        }
    }
}

// loop_in_a_thread_alone: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t == 0) {
        for (int i = 0; i < n; i++) {
            v[i] = u[i] + 2.0 * u[(i + 1) % n];
        }
    }
}

// loop_in_the_first_of_each_block: line
{
    if (threadIdx.x == 0) {
        for (int i = blockIdx.x; i < n; i += gridDim.x) {
            v[i] = u[i] + 2.0 * u[(i + 1) % n];
        }
    }
}

// y_adds_again: plane
{
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = j; i < m; i += gridDim.x * blockDim.x) {
        atomicAdd(&y[i], c[i] + 2.0 * c[(i + 1) % m]);
    }
}

// turned_more_than_once: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < n) {
        v[t] = u[(t + 2 * n + 1) % n] * u[t];
    }
}

// turned_back: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < n) {
        v[t] = u[((t - 3) % n + n) % n] * u[t];
    }
}

// turned_within_less: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < n) {
        v[t] = c[(t + 1) % m] * u[t];
    }
}

// mirrored_ends: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (n > 1 && t < n) {
        int before = t - 1 < 0 ? 1 - t : t - 1, after = t + 1 >= n ? 2 * n - 3 - t : t + 1;
        v[t] = u[before] * u[after] + u[t];
    }
}

// unsigned_ends: line
{
    unsigned t = blockIdx.x * blockDim.x + threadIdx.x, last = n - 1;
    if (n > 0 && t <= last) {
        v[t] = u[t - 1u < last ? t - 1u : last] * u[t];
    }
}

// unsigned_guard: line
{
    unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
    if (n > 4 && t - 2u < n - 4u) {
        v[t] = u[t - 2] * u[t + 2];
    }
}

// unsigned_guard_that_lets_all_through: line
{
    unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t - 1u < n - 0u && t < n) {
        v[t] = u[t] * u[t > 0 ? t - 1 : 0];
    }
}

// narrow_index_wraps: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned char j = (unsigned char)(t + 255);
    if (t > 0 && t < n) {
        v[t] = u[j] * u[t];
    }
}

// pinned_ends: line
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (n > 1 && t < n) {
        if (t == 0) {
            v[t] = u[1] * u[n - 1];
        } else if (t == n - 1) {
            v[t] = u[0] * u[t];
        } else {
            v[t] = u[t - 1] * u[t + 1];
        }
    }
}

// reads_what_a_loop_takes: line, x = 3 * n
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < n) {
        double sum = 0;
        for (int k = 0; k < 3; k++) {
            sum += x[t * 3 + k] * w[k];
        }
        for (int k = 0; k < 3; k++) {
            x[t * 3 + k] = x[t * 3 + k] + sum * w[k];
        }
    }
}
