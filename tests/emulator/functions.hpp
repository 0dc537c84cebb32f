// Built-in functions of CUDA C++ that the sources use and C++ lacks. Another one does not compile: add it here. A part of
// shim.hpp.
#pragma once

inline int min(int a, int b) { return b < a ? b : a; }
inline int max(int a, int b) { return a < b ? b : a; }
inline unsigned min(unsigned a, unsigned b) { return b < a ? b : a; }
inline long long min(long long a, long long b) { return b < a ? b : a; }
inline long long max(long long a, long long b) { return a < b ? b : a; }
// As fmin and fmax: a NaN gives way
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }

inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }

inline void sincospi(double x, double* sine, double* cosine) {
    const double quarters = rint(2.0 * x);
    const double angle = M_PI * (x - 0.5 * quarters); // |angle| <= pi / 4, the difference exact
    const double s = sin(angle), c = cos(angle);
    switch (int(quarters - 4.0 * floor(0.25 * quarters))) {
    case 0: *sine = s, *cosine = c; break;
    case 1: *sine = c, *cosine = -s; break;
    case 2: *sine = -s, *cosine = -c; break;
    default: *sine = -c, *cosine = s; break;
    }
    if (!(fabs(x) < INFINITY)) {
        *sine = *cosine = NAN;
    }
}
// Of the fused peers in bench/gpu
inline double cospi(double x) {
    double s, c;
    sincospi(x, &s, &c);
    return c;
}

inline double __dmul_rn(double a, double b) { return a * b; }
inline double __longlong_as_double(long long a) { return std::bit_cast<double>(a); }
inline int __double2hiint(double a) { return int(std::bit_cast<std::uint64_t>(a) >> 32); }
inline int __double2loint(double a) { return int(std::bit_cast<std::uint64_t>(a)); }
inline double __hiloint2double(int high, int low) {
    return std::bit_cast<double>(std::uint64_t(unsigned(high)) << 32 | unsigned(low));
}
inline int __ffs(int a) { return a ? std::countr_zero(unsigned(a)) + 1 : 0; }

struct alignas(16) double2 {
    double x, y;
};
