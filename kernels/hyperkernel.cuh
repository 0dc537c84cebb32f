// The hyper-kernel of a squared distance: outputscale * exp(-E^(power/2) / lengthscale^2).
#pragma once

#include "common.cuh"

// `rate` is -1 / lengthscale^2; power 0 leaves the distance as it is.
__device__ __forceinline__ double covariance(int power, double outputscale, double rate, double distance) {
    if (power == 0) {
        return distance;
    }
    return outputscale * exp(rate * (power == 1 ? sqrt(distance) : distance));
}
