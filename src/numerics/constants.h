// SPDX-License-Identifier: Apache-2.0
// Every constant that fixes an order or a rounding. Version 1 is frozen: another value of any of these is
// another version, and version 1 stays executable beside it (docs/numerics.md, Versions).
#pragma once

#include <cstdint>

namespace lockstep::numerics {

inline constexpr int kNumericsVersion = 1;

// Products.
inline constexpr int64_t kForwardChunk = 1024;    // k of a forward product a chunk
inline constexpr int64_t kGradientChunk = 16384;  // steps of a gradient chain a chunk
inline constexpr int64_t kTokenPad = 16;          // rows of a sample are padded with zeros to this (bf16)

// Sums over a row.
inline constexpr int kSumLanes = 128;
inline constexpr int64_t kTensorSumBlock = 65536;  // elements

// Attention.
inline constexpr int64_t kKeyBlock = 64;
inline constexpr int64_t kAttentionSegment = 512;  // keys
inline constexpr int kSoftmaxLanes = 8;
inline constexpr int kWeightFloor = -40;        // weights below 2^-40 of the running maximum are +0
inline constexpr float kMaxScore = 2097152.0F;  // 2^21: |s| at or above it is an error

// Vocabulary.
inline constexpr int64_t kVocabTile = 128;
inline constexpr int kWeightFractionBits = 44;  // weights are multiples of 2^-44
inline constexpr int64_t kMaxVocab = 524288;    // 2^19: no sum of weights can overflow (docs/numerics.md)

// Gradients as integers.
inline constexpr int kGradientFractionBits = 44;
inline constexpr int kGradientRangeBits = 18;  // |x| >= 2^18 / pieces is an error
inline constexpr int64_t kVectorPiece = 64;    // tokens of a sample a piece of a vector's gradient
inline constexpr int kDefaultGradLeaves = 32;

// Tensor digest.
inline constexpr int64_t kDigestBlockBytes = 4096;

}  // namespace lockstep::numerics
