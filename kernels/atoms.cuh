// What one pair of atoms adds to the distance of two mixtures, and its slope, in every form and precision. An axis d of
// an atom is the pair (mean_d, scale_d); axes are added from the first to the last.
#pragma once

#include "common.cuh"

enum Form { ENERGY = 0, REFLECTED = 1, GAUSSIAN = 2, REFLECTED_GAUSSIAN = 3 };

// ---- numbers: float64, or float32 for the terms with float64 for their sums ----

// A float64 in two float32: differences of near coordinates keep their digits wherever the origin lies.
struct Split {
    float high;
    float low;
};

template <bool MIXED> struct Precision {
    typedef double real;
    typedef double coordinate;
};

template <> struct Precision<true> {
    typedef float real;
    typedef Split coordinate;
};

// One axis of an atom, read from shared memory at once
template <typename C> struct alignas(2 * sizeof(C)) Axis {
    C mean;
    C scale;
};

__device__ __forceinline__ void convert(double value, double* to) {
    *to = value;
}

__device__ __forceinline__ void convert(double value, float* to) {
    *to = (float)value;
}

__device__ __forceinline__ void convert(double value, Split* to) {
    to->high = (float)value;
    to->low = (float)(value - (double)to->high);
}

__device__ __forceinline__ double minus(double p, double q) {
    return p - q;
}

__device__ __forceinline__ double plus(double p, double q) {
    return p + q;
}

__device__ __forceinline__ float minus(Split p, Split q) {
    return (p.high - q.high) + (p.low - q.low);
}

__device__ __forceinline__ float plus(Split p, Split q) {
    return (p.high + q.high) + (p.low + q.low);
}

__device__ __forceinline__ double add_square(double x, double sum) {
    return fma(x, x, sum);
}

__device__ __forceinline__ float add_square(float x, float sum) {
    return fmaf(x, x, sum);
}

__device__ __forceinline__ double root(double x) {
    return branchless_root(x);
}

// By the approximate reciprocal root, 2 ulp. The smallest normal number keeps 0 from becoming 0 * inf.
__device__ __forceinline__ float root(float x) {
    return x * rsqrtf(fmaxf(x, 1.17549435e-38f));
}

// Sum over j of w_j g_j for one i
template <typename R> struct Total;

template <> struct Total<double> {
    double sum;

    __device__ __forceinline__ void start() { sum = 0.0; }
    __device__ __forceinline__ void add(double weight, double value) { sum = fma(weight, value, sum); }
    __device__ __forceinline__ double value() const { return sum; }
};

// float32 sums of 8 terms, added in float64
template <> struct Total<float> {
    double sum;
    float part;
    int n;

    __device__ __forceinline__ void start() {
        sum = 0.0;
        part = 0.0f;
        n = 0;
    }
    __device__ __forceinline__ void add(float weight, float value) {
        part = fmaf(weight, value, part);
        if (++n == 8) {
            sum += (double)part;
            part = 0.0f;
            n = 0;
        }
    }
    __device__ __forceinline__ double value() const { return sum + (double)part; }
};

// ---- one pair of atoms ----
// Gap: g(p_i, q_j), axis by axis. `b2` is the squared bandwidth of the Gaussian forms.
template <int FORM, typename R> struct Gap;

template <typename R> struct Gap<ENERGY, R> {
    R squares;

    __device__ __forceinline__ void start() { squares = 0; }
    template <typename C> __device__ __forceinline__ void add(Axis<C> p, Axis<C> q, double) {
        squares = add_square(minus(p.mean, q.mean), squares);
        squares = add_square(minus(p.scale, q.scale), squares);
    }
    __device__ __forceinline__ R value() const { return root(squares); }
};

// Half of each mass at the mirror image: mirroring both ends changes nothing, so two of four distances remain.
template <typename R> struct Gap<REFLECTED, R> {
    R squares;
    R mirrored;

    __device__ __forceinline__ void start() {
        squares = 0;
        mirrored = 0;
    }
    template <typename C> __device__ __forceinline__ void add(Axis<C> p, Axis<C> q, double) {
        const R scale = minus(p.scale, q.scale);
        squares = add_square(scale, add_square(minus(p.mean, q.mean), squares));
        mirrored = add_square(scale, add_square(plus(p.mean, q.mean), mirrored));
    }
    __device__ __forceinline__ R value() const { return (R)0.5 * (root(squares) + root(mirrored)); }
};

// -2 <N(p), N(q)>, the product of b/sqrt(V_d) exp(-(m_d - m'_d)^2 / (2 V_d)), V_d = s_d^2 + s'_d^2 + b^2
template <> struct Gap<GAUSSIAN, double> {
    double product;
    double exponent;

    __device__ __forceinline__ void start() {
        product = 1.0;
        exponent = 0.0;
    }
    __device__ __forceinline__ void add(Axis<double> p, Axis<double> q, double b2) {
        const double inverse = 1.0 / fma(q.scale, q.scale, fma(p.scale, p.scale, b2));
        const double mean = p.mean - q.mean;
        product *= b2 * inverse;
        exponent = fma(mean * mean, -0.5 * inverse, exponent);
    }
    __device__ __forceinline__ double value() const { return -2.0 * (sqrt(product) * exp(exponent)); }
};

template <> struct Gap<REFLECTED_GAUSSIAN, double> {
    double product;
    double exponent;
    double mirrored;

    __device__ __forceinline__ void start() {
        product = 1.0;
        exponent = 0.0;
        mirrored = 0.0;
    }
    __device__ __forceinline__ void add(Axis<double> p, Axis<double> q, double b2) {
        const double inverse = 1.0 / fma(q.scale, q.scale, fma(p.scale, p.scale, b2));
        const double mean = p.mean - q.mean;
        const double other = p.mean + q.mean;
        product *= b2 * inverse;
        exponent = fma(mean * mean, -0.5 * inverse, exponent);
        mirrored = fma(other * other, -0.5 * inverse, mirrored);
    }
    __device__ __forceinline__ double value() const {
        return -(sqrt(product) * (exp(exponent) + exp(mirrored)));
    }
};

// Slope: the gradient of h g(p_i, q_j), h a number, from the finished gap; the factor w_i comes at the end, and
// for Gaussian scales the factor s_i. Where atoms meet the inverse root is some 1e-154, times differences of 0: the
// subgradient 0. `start` returns h g. Always float64.
template <int FORM> struct Slope;

template <> struct Slope<ENERGY> {
    double factor;

    __device__ __forceinline__ double start(const Gap<ENERGY, double>& gap, double h) {
        factor = h * branchless_inverse_root(gap.squares);
        return factor * gap.squares;
    }
    __device__ __forceinline__ void add(Axis<double> p, Axis<double> q, double, Axis<double>* g) const {
        g->mean = fma(factor, p.mean - q.mean, g->mean);
        g->scale = fma(factor, p.scale - q.scale, g->scale);
    }
};

template <> struct Slope<REFLECTED> {
    double factor;
    double mirrored;

    __device__ __forceinline__ double start(const Gap<REFLECTED, double>& gap, double h) {
        factor = 0.5 * h * branchless_inverse_root(gap.squares);
        mirrored = 0.5 * h * branchless_inverse_root(gap.mirrored);
        return fma(factor, gap.squares, mirrored * gap.mirrored);
    }
    __device__ __forceinline__ void add(Axis<double> p, Axis<double> q, double, Axis<double>* g) const {
        g->mean = fma(factor, p.mean - q.mean, fma(mirrored, p.mean + q.mean, g->mean));
        g->scale = fma(factor + mirrored, p.scale - q.scale, g->scale);
    }
};

template <> struct Slope<GAUSSIAN> {
    double factor;

    __device__ __forceinline__ double start(const Gap<GAUSSIAN, double>& gap, double h) {
        factor = h * gap.value();
        return factor;
    }
    __device__ __forceinline__ void add(Axis<double> p, Axis<double> q, double b2, Axis<double>* g) const {
        const double inverse = 1.0 / fma(q.scale, q.scale, fma(p.scale, p.scale, b2));
        const double z = (p.mean - q.mean) * inverse;
        g->mean = fma(-factor, z, g->mean);
        g->scale = fma(factor, fma(z, z, -inverse), g->scale);
    }
};

template <> struct Slope<REFLECTED_GAUSSIAN> {
    double factor;
    double mirrored;

    __device__ __forceinline__ double start(const Gap<REFLECTED_GAUSSIAN, double>& gap, double h) {
        const double height = -h * sqrt(gap.product);
        factor = height * exp(gap.exponent);
        mirrored = height * exp(gap.mirrored);
        return factor + mirrored;
    }
    __device__ __forceinline__ void add(Axis<double> p, Axis<double> q, double b2, Axis<double>* g) const {
        const double inverse = 1.0 / fma(q.scale, q.scale, fma(p.scale, p.scale, b2));
        const double z = (p.mean - q.mean) * inverse;
        const double y = (p.mean + q.mean) * inverse;
        g->mean = fma(-factor, z, fma(-mirrored, y, g->mean));
        g->scale = fma(factor, fma(z, z, -inverse), fma(mirrored, fma(y, y, -inverse), g->scale));
    }
};
