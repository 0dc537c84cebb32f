// 16 x 16 tiles in shared and in global memory, and matrices of them: where each entry lies, and a warp's way from one
// to the other or to registers.
#pragma once

#include "cholesky.cuh"

constexpr int TILE_AREA = TILE * TILE;

// A tile as it lies in memory: columns are permuted by row, so that neither rows nor columns clash in the banks of
// shared memory, be it that a warp reads fragments of a factor or of its transpose, or a tile by pairs of entries.
struct StoredTile {
    double* base; // 16-byte aligned
    __device__ __forceinline__ double& operator()(int row, int column) const {
        return base[row * TILE + (column ^ ((row & 1) << 3 | (row & 2) << 1))];
    }
};

// Entries (row, column) and (row, column + 1), for an even column
struct alignas(16) EntryPair {
    double first;
    double second;
};

__device__ __forceinline__ EntryPair& pair_at(const StoredTile& tile, int row, int column) {
    return *reinterpret_cast<EntryPair*>(&tile(row, column));
}

// A tile in global memory, where a warp reads it as a fragment most of all: the pairs of a fragment one after another,
// each for all lanes.
struct FactorTile {
    double* base; // 16-byte aligned
    __device__ __forceinline__ double& operator()(int row, int column) const {
        return base[(column / 4 * WARP + row % 8 * 4 + column % 4) * 2 + row / 8];
    }
};

#ifdef MF_HAVE_MMA
__device__ __forceinline__ Fragment load_fragment(const FactorTile& from) {
    Fragment part;
#pragma unroll
    for (int e = 0; e < 8; e += 2) {
        const EntryPair pair = *reinterpret_cast<const EntryPair*>(from.base + e * WARP + 2 * lane_of());
        part.entry[e] = pair.first;
        part.entry[e + 1] = pair.second;
    }
    return part;
}
#endif

// Lower tiles one after another, by rows
template <typename View> struct PackedTiles {
    double* base;
    __device__ __forceinline__ View at(int row, int column) const {
        return {base + lower_index(row, column) * TILE_AREA};
    }
};

// The same of the first `width` columns
struct Trapezoid {
    double* base;
    int width;
    __device__ __forceinline__ StoredTile at(int row, int column) const {
        const int top = min(row, width);
        return {base + (top * (top + 1) / 2 + (row - top) * width + column) * TILE_AREA};
    }
};

// A warp's tile from memory and back
__device__ __forceinline__ WarpTile load_tile(const StoredTile& from) {
    WarpTile tile;
#pragma unroll
    for (int e = 0; e < 8; e += 2) {
#ifdef MF_HAVE_MMA
        const EntryPair pair = pair_at(from, tile_row(e), tile_column(e));
        tile.entry[e] = pair.first;
        tile.entry[e + 1] = pair.second;
#else
        tile.entry[e] = from(tile_row(e), tile_column(e));
        tile.entry[e + 1] = from(tile_row(e + 1), tile_column(e + 1));
#endif
    }
    return tile;
}

__device__ __forceinline__ void store_tile(const WarpTile& tile, const StoredTile& to) {
#pragma unroll
    for (int e = 0; e < 8; e += 2) {
#ifdef MF_HAVE_MMA
        pair_at(to, tile_row(e), tile_column(e)) = {tile.entry[e], tile.entry[e + 1]};
#else
        to(tile_row(e), tile_column(e)) = tile.entry[e];
        to(tile_row(e + 1), tile_column(e + 1)) = tile.entry[e + 1];
#endif
    }
}

__device__ __forceinline__ void store_tile(const WarpTile& tile, const FactorTile& to) {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
        to(tile_row(e), tile_column(e)) = tile.entry[e];
    }
}

// A warp copies a tile, entry by entry in the order of memory
template <typename View> __device__ __forceinline__ void copy_tile(const View& from, const FactorTile& to) {
#pragma unroll
    for (int e = 0; e < TILE_AREA / WARP; e += 2) {
        const int row = lane_of() / 4;
        const int column = e * 2 + lane_of() % 4;
        *reinterpret_cast<EntryPair*>(&to(row, column)) = {from(row, column), from(row + 8, column)};
    }
}
