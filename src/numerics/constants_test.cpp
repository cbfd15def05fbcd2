// SPDX-License-Identifier: Apache-2.0
#include "numerics/constants.h"

#include <gtest/gtest.h>

namespace lockstep::numerics {
namespace {

// Version 1 is frozen. Whoever wants another value makes another version: docs/numerics.md, Versions.
TEST(Constants, VersionOneIsFrozen) {
  ASSERT_EQ(kNumericsVersion, 1);
  EXPECT_EQ(kForwardChunk, 1024);
  EXPECT_EQ(kGradientChunk, 16384);
  EXPECT_EQ(kTokenPad, 16);
  EXPECT_EQ(kSumLanes, 128);
  EXPECT_EQ(kTensorSumBlock, 65536);
  EXPECT_EQ(kKeyBlock, 64);
  EXPECT_EQ(kAttentionSegment, 512);
  EXPECT_EQ(kSoftmaxLanes, 8);
  EXPECT_EQ(kWeightFloor, -40);
  EXPECT_EQ(kMaxScore, 0x1p21F);
  EXPECT_EQ(kVocabTile, 128);
  EXPECT_EQ(kWeightFractionBits, 44);
  EXPECT_EQ(kMaxVocab, int64_t{1} << 19);
  EXPECT_EQ(kGradientFractionBits, 44);
  EXPECT_EQ(kGradientRangeBits, 18);
  EXPECT_EQ(kVectorPiece, 64);
  EXPECT_EQ(kDefaultGradLeaves, 32);
  EXPECT_EQ(kDigestBlockBytes, 4096);
}

}  // namespace
}  // namespace lockstep::numerics
