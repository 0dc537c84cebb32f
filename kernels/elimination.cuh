// Cholesky elimination of one matrix by one block, by 16 x 16 tiles in shared memory.
//
// The matrix is held with its sign turned, X = -C, so that every update is a sum of products. Tile column k in turn:
//
//     factor    X_kk = -L L'  is replaced by  L and W = L^-1, and z_k = W y_k     one warp
//     solve     Y_i = X_ik W' = -L_ik  replaces X_ik, and y_i += Y_i z_k          a lane a row
//     update    X_ij += Y_i Y_j'                                                  a warp a tile
//
// Only the factors form a chain: warp 0 updates the next diagonal tile first, and factors it while others update.
//
// For the inverse the same is done to every tile row i but k, above as well as below. For i < k the tile X_ki stands
// for X_ik', and Y_i = X_ki' W' replaces it. When k is done with, X_ik becomes -Y_i W (X_ki: -W' Y_i') and X_kk becomes
// W'W. So the leading tiles hold the inverse of the leading part of C, the tiles below them C's regression on that
// part, and in the end all of them are C^-1. Every step then has as many products as the first, most of which cost no
// time: they are done while warp 0 factors.
#pragma once

#include "tiles.cuh"

constexpr double SMALLEST_NORMAL = 2.2250738585072014e-308;

// 1 / sqrt(pivot) within 1 ulp for a good pivot: a step of third order from the seed. rsqrt() has a branch, which
// shuffles and products of other columns cannot cross.
__device__ __forceinline__ double inverse_pivot_root(double pivot) {
    double seed;
    MF_RSQRT_SEED(seed, pivot);
    const double error = fma(-__dmul_rn(pivot, seed), seed, 1.0);
    return fma(__dmul_rn(seed, error), fma(0.375, error, 0.5), seed);
}

// What a factored diagonal tile holds: W = L^-1 on and below its diagonal, and the rest of L above, as columns
struct InverseFactor {
    StoredTile tile;
    __device__ __forceinline__ double operator()(int row, int column) const {
        return column <= row ? tile(row, column) : 0.0;
    }
};

// One warp replaces a diagonal tile X = -L L' by W = L^-1 and L, and the 16 entries z of what is left of y by W z.
// `pivots` receives the squares of L's diagonal. `column` is the tile's first in the matrix; `bad` is set to the first
// bad pivot's, counted from 1, if it was 0, and all other results are then meaningless.
//
// Lanes 0 to 15 hold the rows of L L', lanes 16 to 30 those of an identity and lane 31 z: elimination makes the
// latter L^-T and (L^-1 z)'. What a column passes round is its entries before they are divided, and every
// lane follows the next pivot: the shuffles then run beside the inverse root, and the chain from pivot to pivot has
// one root, one product and one multiply-add a column.
__device__ __forceinline__ void factor_and_invert(const StoredTile& tile, double bound, int column, int* bad,
                                                  double* pivots, double* z) {
    bound = fmax(bound, SMALLEST_NORMAL); // below, inverse_pivot_root does not work
    const int lane = lane_of();
    const int row = lane % TILE;
    const bool below = lane >= TILE;
    const bool is_z = lane == WARP - 1;
    double a[TILE];
#pragma unroll
    for (int c = 0; c < TILE; c += 2) {
        const EntryPair entries = pair_at(tile, row, c);
        a[c] = is_z ? z[c] : below ? (c == row ? 1.0 : 0.0) : -entries.first;
        a[c + 1] = is_z ? z[c + 1] : below ? (c + 1 == row ? 1.0 : 0.0) : -entries.second;
    }
    double pivot = __shfl_sync(FULL_WARP, a[0], 0);
    double own_pivot = 0.0;
    double inverse = 0.0;
#pragma unroll
    for (int k = 0; k < TILE; ++k) {
        double entry[TILE]; // of column k
        double next = 0.0;
#pragma unroll
        for (int c = 0; c < TILE; ++c) {
            if (c == k + 1) {
                next = __shfl_sync(FULL_WARP, a[c], c);
            }
            if (c > k) {
                entry[c] = __shfl_sync(FULL_WARP, a[k], c);
            }
        }
        own_pivot = row == k ? pivot : own_pivot;
        inverse = inverse_pivot_root(pivot);
        if (k + 1 < TILE) {
            const double side = entry[(k + 1) % TILE] * inverse;
            pivot = fma(-side, side, next);
        }
        a[k] *= inverse;
        const double share = a[k] * inverse;
#pragma unroll
        for (int c = 0; c < TILE; ++c) {
            if (c > k) {
                a[c] = fma(-share, entry[c], a[c]);
            }
        }
    }
    const unsigned failed =
        __ballot_sync(FULL_WARP, !below && !(own_pivot > bound && own_pivot < infinity())); // NaN too
    __syncwarp(); // all lanes have read the tile
#pragma unroll
    for (int c = 0; c < TILE; ++c) {
        if (below == (c >= row)) {
            tile(c, row) = is_z ? inverse : a[c];
        }
        if (is_z) {
            z[c] = a[c];
        }
    }
    if (!below) {
        pivots[row] = own_pivot;
    }
    if (lane == 0 && failed && bad[0] == 0) {
        bad[0] = column + __ffs(failed);
    }
}

__device__ __forceinline__ void load_row(const StoredTile& from, int row, double (&y)[TILE]) {
#pragma unroll
    for (int c = 0; c < TILE; c += 2) {
        const EntryPair pair = pair_at(from, row, c);
        y[c] = pair.first;
        y[c + 1] = pair.second;
    }
}

__device__ __forceinline__ void load_row(const Turned<StoredTile>& from, int row, double (&y)[TILE]) {
#pragma unroll
    for (int c = 0; c < TILE; ++c) {
        y[c] = from(row, c);
    }
}

// One lane's row y of X becomes that of Y, Y L' = X, by substitution: W would do it by products, but less exactly where
// L is ill-conditioned. `corner` holds 1 / L_kk on its diagonal and the columns of L as rows to the right of it.
__device__ __forceinline__ void solve_row(double (&y)[TILE], const StoredTile& corner) {
#pragma unroll
    for (int k = 0; k < TILE; ++k) {
        y[k] *= corner(k, k);
#pragma unroll
        for (int c = 0; c < TILE; ++c) {
            if (c > k) {
                y[c] = fma(-y[k], corner(k, c), y[c]);
            }
        }
    }
}

// Tile that holds X_ik or, above the diagonal, X_ki
template <typename Tiles> __device__ __forceinline__ StoredTile home(const Tiles& tiles, int i, int k) {
    return tiles.at(max(i, k), min(i, k));
}

// One warp, when column k is done with: tile row i of it becomes -Y_i W
template <typename Tiles> __device__ __forceinline__ void finish_tile(const Tiles& tiles, int i, int k) {
    const StoredTile solved = home(tiles, i, k);
    const InverseFactor corner = {tiles.at(k, k)};
    WarpTile tile = zero_tile();
    if (i > k) {
        add_product<-1>(tile, solved, turned(corner));
    } else {
        add_product<-1>(tile, turned(corner), solved);
    }
    __syncwarp();
    store_tile(tile, solved);
}

// One warp, when no tile needs W any more: W becomes W'W
__device__ __forceinline__ void finish_corner(const StoredTile& corner) {
    WarpTile tile = zero_tile();
    add_product<1>(tile, turned(InverseFactor{corner}), turned(InverseFactor{corner}));
    __syncwarp();
    store_tile(tile, corner);
}

__device__ __forceinline__ int wrapped(int i, int n) {
    return i < n ? i : i - n;
}

// A block eliminates the first `width` tile columns of a matrix of `height` tile rows, column `first` of the whole
// being its first; y in `z` becomes L^-1 y, for the rows below what is left of y. Stops where a pivot is bad. With
// INVERSE, which takes all columns, C^-1 replaces the matrix and `alpha` becomes C^-1 y. The caller needs no
// barrier before if warp 0 has written tile (0, 0) and its part of z; the last one here comes after all writes.
template <int BLOCK, bool INVERSE, typename Tiles>
__device__ __forceinline__ void eliminate(const Tiles& tiles, int height, int width, const double& bound,
                                          int first, int* bad, double* pivots, double* z, double* alpha) {
    constexpr int WARPS = BLOCK / WARP;
    const int warp = warp_of();
    for (int k = 0; k < width; ++k) {
        if (warp == 0) { // who has just updated this tile
            __syncwarp();
            factor_and_invert(tiles.at(k, k), bound, first + k * TILE, bad, pivots + k * TILE, z + k * TILE);
        }
        __syncthreads();
        if (bad[0] != 0) {
            return;
        }
        // Solve, for the tile rows but k in turns that begin with k + 1, a lane a row. For the inverse this is also
        // where column k - 1 is finished: only row k needs it now, which the same warp solves next.
        const int others = INVERSE ? height - 1 : height - 1 - k;
        const StoredTile corner = tiles.at(k, k);
        const double* const z_k = z + k * TILE;
        for (int pair = 2 * warp; pair < others; pair += 2 * WARPS) {
            if (INVERSE && k > 0) {
                for (int r = pair; r < min(pair + 2, others); ++r) {
                    const int i = wrapped(k + 1 + r, height);
                    finish_tile(tiles, i == k - 1 ? k : i, k - 1);
                }
                __syncwarp();
            }
            const int r = pair + lane_of() / TILE;
            const int row = lane_of() % TILE;
            const bool is_row = r < others; // else a half warp reads the diagonal tile, in vain
            const int i = !is_row ? k : INVERSE ? wrapped(k + 1 + r, height) : k + 1 + r;
            const StoredTile place = INVERSE ? home(tiles, i, k) : tiles.at(i, k);
            double y[TILE];
            if (INVERSE && i < k) {
                load_row(turned(place), row, y);
            } else {
                load_row(place, row, y);
            }
            solve_row(y, corner);
            if (INVERSE) {
                __syncwarp(); // for i < k a row takes the place of a column
            }
            if (is_row) {
                double sum = 0.0;
#pragma unroll
                for (int c = 0; c < TILE; c += 2) {
                    pair_at(place, row, c) = {y[c], y[c + 1]};
                    sum = fma(y[c], z_k[c], sum);
                    sum = fma(y[c + 1], z_k[c + 1], sum);
                }
                if (INVERSE && i < k) {
                    alpha[i * TILE + row] -= sum;
                } else {
                    z[i * TILE + row] += sum;
                }
            }
        }
        if (INVERSE && threadIdx.x >= BLOCK - TILE) {
            const int c = threadIdx.x - (BLOCK - TILE);
            double sum = 0.0;
            for (int m = c; m < TILE; ++m) {
                sum = fma(corner(m, c), z_k[m], sum);
            }
            alpha[k * TILE + c] = sum;
        }
        __syncthreads();
        // Update. Warp 0 has only the next diagonal tile while there is one, and goes on to factor it.
        const bool more = k + 1 < width;
        const int across = INVERSE ? height : width - 1 - k;
        if (!INVERSE && !more) {
            return;
        }
        Place place = {0, 0};
        place.advance(warp, across);
        while (place.row < others) {
            int i = k + 1 + place.row;
            int j = k + 1 + place.column;
            if (INVERSE) {
                const int one = wrapped(i, height);
                const int other = wrapped(j, height);
                i = max(one, other);
                j = min(one, other);
            }
            const StoredTile target = tiles.at(i, j);
            if (INVERSE && k > 0 && i == k - 1 && j == k - 1) {
                finish_corner(target);
            }
            WarpTile tile = load_tile(target);
            if (INVERSE) {
                add_product<1>(tile, home(tiles, i, k), home(tiles, j, k));
            } else {
                add_product<1>(tile, tiles.at(i, k), tiles.at(j, k));
            }
            store_tile(tile, target);
            if (more && warp == 0) {
                break;
            }
            place.advance(more ? WARPS - 1 : WARPS, across);
        }
    }
    if (INVERSE) {
        __syncthreads();
        for (int i = warp; i < height - 1; i += WARPS) {
            finish_tile(tiles, i, height - 1);
        }
        __syncthreads();
        if (warp == 0) {
            finish_corner(tiles.at(height - 1, height - 1));
        }
        __syncthreads();
    }
}

// ---- the inverse from a factor in global memory ----
// A block replaces the lower tiles of a factor as `eliminate` leaves it, L^-1 on the diagonal and -L below, by those of
// the whole L^-1, column by column from the last; `column_tiles` is shared memory for n_tiles tiles. The caller
// puts a barrier before; one has passed after the last write.
template <int BLOCK>
__device__ __forceinline__ void invert_factor(const PackedTiles<FactorTile>& tiles, int n_tiles,
                                              double* column_tiles) {
    constexpr int WARPS = BLOCK / WARP;
    for (int j = n_tiles - 2; j >= 0; --j) {
        for (int k = j + 1 + warp_of(); k < n_tiles; k += WARPS) {
            WarpTile tile = zero_tile();
            add_product<1>(tile, tiles.at(k, j), turned(tiles.at(j, j)));
            store_tile(tile, StoredTile{column_tiles + k * TILE_AREA});
        }
        __syncthreads();
        for (int i = j + 1 + warp_of(); i < n_tiles; i += WARPS) {
            WarpTile tile = zero_tile();
            for (int k = j + 1; k <= i; ++k) {
                add_product<1>(tile, tiles.at(i, k), turned(StoredTile{column_tiles + k * TILE_AREA}));
            }
            store_tile(tile, tiles.at(i, j));
        }
        __syncthreads();
    }
}

// A block replaces the lower tiles of W = L^-1 by those of W' W = C^-1, row by row, and fills alpha = W' z. The
// diagonal tiles of W, which every tile of their row needs to the last, move to `diagonal_tiles` first.
template <int BLOCK>
__device__ __forceinline__ void square_inverse(const PackedTiles<FactorTile>& tiles, int n_tiles,
                                               const double* z, double* alpha, double* diagonal_tiles) {
    constexpr int WARPS = BLOCK / WARP;
    for (int j = threadIdx.x; j < n_tiles * TILE; j += BLOCK) {
        double total = 0.0;
        for (int i = j; i < n_tiles * TILE; ++i) {
            total = fma(tiles.at(i / TILE, j / TILE)(i % TILE, j % TILE), z[i], total);
        }
        alpha[j] = total;
    }
    for (int k = warp_of(); k < n_tiles; k += WARPS) {
        const FactorTile corner = tiles.at(k, k);
        for (int e = lane_of(); e < TILE_AREA; e += WARP) {
            StoredTile{diagonal_tiles + k * TILE_AREA}(e / TILE, e % TILE) = corner(e / TILE, e % TILE);
        }
    }
    __syncthreads();
    for (int i = 0; i < n_tiles; ++i) {
        const StoredTile corner = {diagonal_tiles + i * TILE_AREA};
        for (int j = warp_of(); j <= i; j += WARPS) {
            WarpTile tile = zero_tile();
            if (j == i) {
                add_product<1>(tile, turned(corner), turned(corner));
            } else {
                add_product<1>(tile, turned(corner), turned(tiles.at(i, j)));
            }
            for (int k = i + 1; k < n_tiles; ++k) {
                add_product<1>(tile, turned(tiles.at(k, i)), turned(tiles.at(k, j)));
            }
            __syncwarp(); // the tile that is overwritten was read by other lanes
            store_tile(tile, tiles.at(i, j));
        }
        __syncthreads();
    }
}
