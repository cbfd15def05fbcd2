// SPDX-License-Identifier: Apache-2.0
// What one AdamW step takes besides the tensors, for host and device code.
#pragma once

namespace lockstep::ops {

// All computed in binary64 from the integer step (1-based; powers by repeated multiplication) and rounded
// once.
struct AdamWFactors {
  float clip = 1;  // factor of the gradient
  float beta1 = 0, one_minus_beta1 = 0;
  float beta2 = 0, one_minus_beta2 = 0;
  float correction1 = 0;  // 1/(1 - beta1^t)
  float correction2 = 0;  // 1/(1 - beta2^t)
  float eps = 0;
  float negative_lr = 0;
  float weight_decay = 0;
};

}  // namespace lockstep::ops
