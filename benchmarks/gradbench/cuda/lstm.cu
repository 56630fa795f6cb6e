// A network of l layers of b cells with long short-term memory, each cell connected with the one of its number in the layer below alone, that
// reads a sequence of c characters of b bits.

__device__ double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

// All of the sequence, a thread a number: the state (hidden and cell of each layer) in place, and the prediction after each character.
extern "C" __global__ void predict(const double* weights, const double* ends, double* state, const double* sequence, double* prediction,
                                   int l, int c, int b) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= b) return;
    for (int t = 0; t < c - 1; t++) {
        double input = sequence[t * b + i] * ends[i];
        for (int layer = 0; layer < l; layer++) {
            const double* weight = weights + 8 * b * layer;
            const double* bias = weight + 4 * b;
            double hidden = state[2 * layer * b + i];
            double forget = sigmoid(input * weight[i] + bias[i]);
            double ingate = sigmoid(hidden * weight[b + i] + bias[b + i]);
            double outgate = sigmoid(input * weight[2 * b + i] + bias[2 * b + i]);
            double change = tanh(hidden * weight[3 * b + i] + bias[3 * b + i]);
            double cell = state[(2 * layer + 1) * b + i] * forget + ingate * change;
            state[(2 * layer + 1) * b + i] = cell;
            input = outgate * tanh(cell);
            state[2 * layer * b + i] = input;
        }
        prediction[t * b + i] = input * ends[b + i] + ends[2 * b + i];
    }
}

// The mean of the losses of all predictions, a thread a character.
extern "C" __global__ void loss_of(const double* prediction, const double* sequence, double* loss, int c, int b) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= c - 1) return;
    double sum = 2.0;
    for (int i = 0; i < b; i++) sum += exp(prediction[t * b + i]);
    double all = log(sum), total = 0.0;
    for (int i = 0; i < b; i++) total += sequence[(t + 1) * b + i] * (prediction[t * b + i] - all);
    atomicAdd(&loss[0], -total / (b * (c - 1)));
}
