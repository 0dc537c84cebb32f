// The predictive mixture, pair by pair: sqrt(N_i N_j) as a Gaussian, normal tails, the search for a quantile,
// cubics of a tabulated CDF, and the Cholesky factor of one small covariance in shared memory.
#pragma once
#include "common.cuh"

// ---- pairs ----
// W_ij s_ij, m_ij and l_i + l_j of one pair; 1 / sd = sqrt((l_i + l_j) / 2) and V = 2 / (l_i + l_j) follow from
// root = 1 / sqrt(l_i + l_j), the only root and division of a pair.
struct Pair {
    double weight, centre, precision, root;
};

// `locals` holds a point's h means (less the point's centre), precisions l and fourth roots of l, one after
// another; `pair_weight` is W_ij, twice that off the diagonal.
__device__ __forceinline__ Pair pair_of(double pair_weight, const double* __restrict__ locals, index_t h,
                                        index_t i, index_t j) {
    Pair pair;
    const double mean_j = locals[j], precision_i = locals[h + i], precision_j = locals[h + j];
    const double gap = locals[i] - mean_j;
    pair.precision = precision_i + precision_j;
    pair.root = rsqrt(pair.precision);
    const double share = precision_i * pair.root * pair.root;
    pair.centre = fma(share, gap, mean_j);
    // sqrt(2) (l_i l_j)^(1/4) / sqrt(l_i + l_j) exp(-l_i l_j gap^2 / (4 (l_i + l_j)))
    const double size = 1.4142135623730951 * locals[2 * h + i] * locals[2 * h + j] * pair.root;
    pair.weight = pair_weight * (size * exp(-0.25 * share * (precision_j * gap * gap)));
    return pair;
}

// Walks a packed lower triangle from place k on in steps of `step`: consecutive threads take consecutive places,
// which lie in one row but for its end, so weights are read in order and row i's numbers are broadcast.
struct TriangleCursor {
    int i, j;

    __device__ __forceinline__ explicit TriangleCursor(index_t k) {
        i = (int)lower_row(k);
        j = (int)(k - lower_index(i, 0));
    }

    __device__ __forceinline__ void advance(int step) {
        j += step;
        while (j > i) {
            j -= i + 1;
            ++i;
        }
    }
};

// ---- tails ----
// P(N(0, 1) > z) for z >= 0, given bell = exp(-z^2 / 2). With x = z / sqrt(2), (1 + 2 x) exp(x^2) erfc(x) is a
// polynomial in t = (x - 3.75) / (x + 3.75) to 5e-18 (the CPU backend's; even and odd powers apart).
__device__ __forceinline__ double upper_tail(double z, double bell) {
    const double x = 0.7071067811865476 * z;
    const double slope = fma(2.0, x, 1.0);
    const double ratio = 1.0 / ((x + 3.75) * slope);
    const double t = (x - 3.75) * slope * ratio;
    const double tt = t * t;
    double p = 4.434959070009628e-10;
    double q = 3.110310719839165e-10;
    p = fma(p, tt, -5.28428697963142e-09);
    q = fma(q, tt, -3.743568033634583e-09);
    p = fma(p, tt, 3.8965452548985966e-08);
    q = fma(q, tt, 2.3261913276696566e-08);
    p = fma(p, tt, -2.591069687796658e-07);
    q = fma(q, tt, -5.721597255990987e-08);
    p = fma(p, tt, 1.752057970166318e-06);
    q = fma(q, tt, -9.735619015182663e-07);
    p = fma(p, tt, -1.1444412439171722e-05);
    q = fma(q, tt, 2.2384240314224437e-05);
    p = fma(p, tt, 5.1649211390702855e-05);
    q = fma(q, tt, -0.0002901540809795271);
    p = fma(p, tt, 0.0002937136342850081);
    q = fma(q, tt, 0.0017556258530017257);
    p = fma(p, tt, -0.009746579552504244);
    q = fma(q, tt, 0.028362277418940665);
    p = fma(p, tt, -0.058693398590212366);
    q = fma(q, tt, 0.09230432116037876);
    p = fma(p, tt, -0.10880393014171785);
    q = fma(q, tt, 0.08227673849014516);
    p = fma(p, tt, 0.003585415485463775);
    q = fma(q, tt, -0.14024059858554697);
    p = fma(p, tt, 1.2375126308378275);
    return 0.5 * bell * fma(q, t, p) * (x + 3.75) * ratio;
}

// Adds a pair's mass of sign * y <= u and its derivative in u, less the factor 1 / sqrt(2 pi).
__device__ __forceinline__ void add_tail(const Pair& pair, double u, double sign, double* mass,
                                         double* slope) {
    const double inverse_sd = 0.7071067811865476 * (pair.precision * pair.root);
    const double z = (u - sign * pair.centre) * inverse_sd;
    const double size = fmin(fabs(z), 40.0);
    const double bell = exp(-0.5 * size * size);
    const double far = upper_tail(size, bell);
    *mass = fma(pair.weight, z < 0.0 ? far : 1.0 - far, *mass);
    *slope = fma(pair.weight * inverse_sd, bell, *slope);
}

constexpr double DENSITY_FACTOR = 0.3989422804014327; // 1 / sqrt(2 pi)

// ---- quantiles ----
// The standard normal quantile of 0 < p <= 1/2 within 4.5e-4 (Hastings' rational form): where a search starts.
__device__ __forceinline__ double rough_normal_quantile(double p) {
    const double t = sqrt(-2.0 * log(p));
    const double above = fma(fma(0.010328, t, 0.802853), t, 2.515517);
    const double below = fma(fma(fma(0.001308, t, 0.189269), t, 1.432788), t, 1.0);
    return above / below - t;
}

// Newton's method on the logarithm of the smaller tail, inside a bracket that starts from Cantelli's inequality
// and falls back on bisection. `u` is the value sought, or its mirror image for a level above 1/2.
struct QuantileSearch {
    double sign, level, sd, low, high, u;

    // Returns whether there is anything to search.
    __device__ __forceinline__ bool start(double probability, double mean, double variance) {
        sign = probability <= 0.5 ? 1.0 : -1.0;
        level = probability <= 0.5 ? probability : 1.0 - probability;
        sd = sqrt(variance);
        if (level <= 0.0) {
            u = -infinity();
            return false;
        }
        low = sign * mean - 1.0001 * sd * sqrt((1.0 - level) / level);
        high = sign * mean + 1.0001 * sd * sqrt(level / (1.0 - level));
        u = fmin(fmax(sign * mean + sd * rough_normal_quantile(level), low), high);
        return true;
    }

    // One step from the normalised mass and density at `u`; returns whether to go on.
    __device__ __forceinline__ bool step(int number, double mass, double density) {
        if (mass < level) {
            low = u;
        } else {
            high = u;
        }
        if (mass == level || high - low <= 4.0 * EPSILON * (fabs(low) + fabs(high))) {
            return false;
        }
        double proposal = low;
        if (mass > 0.0 && density > 0.0) {
            proposal = u + mass / density * log(level / mass);
        }
        const bool newton = low < proposal && proposal < high && !(number >= 16 && number % 2 == 0);
        if (!newton) {
            proposal = 0.5 * (low + high);
        }
        const double moved = fabs(proposal - u);
        u = proposal;
        return !(newton && moved <= 1e-10 * sd);
    }
};

// ---- cubics ----
// A node of a tabulated CDF
struct Node {
    double u, mass, density;
};

// The cubic through two nodes at u = left + share * width: its value, and its slope in `share`
__device__ __forceinline__ double cubic_at(double share, const Node& left, const Node& right, double* slope) {
    const double start = (right.u - left.u) * left.density, end = (right.u - left.u) * right.density;
    const double rise = right.mass - left.mass;
    const double c2 = 3.0 * rise - 2.0 * start - end, c3 = start + end - 2.0 * rise;
    *slope = start + share * (2.0 * c2 + 3.0 * share * c3);
    return left.mass + share * (start + share * (c2 + share * c3));
}

// How far value and slope of the cubic are from the sums over pairs at the middle, in probability
__device__ __forceinline__ double cubic_error(const Node& left, const Node& middle, const Node& right) {
    double slope;
    const double value = cubic_at(0.5, left, right, &slope);
    return fabs(value - middle.mass) + 0.25 * fabs(slope - (right.u - left.u) * middle.density);
}

// The u between two nodes where their cubic has the value `level`: Newton's method in a bracket
__device__ __forceinline__ double invert_cubic(double level, const Node& left, const Node& right) {
    double low = 0.0, high = 1.0, share = 0.5;
    for (int step = 0; step < 60; ++step) {
        double slope;
        const double value = cubic_at(share, left, right, &slope);
        if (value < level) {
            low = share;
        } else {
            high = share;
        }
        double proposal = share + (level - value) / slope;
        if (!(low <= proposal && proposal <= high)) {
            proposal = 0.5 * (low + high);
        }
        const double moved = fabs(proposal - share);
        share = proposal;
        if (moved <= 1e-10) {
            break;
        }
    }
    return left.u + share * (right.u - left.u);
}
