// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "core/status.h"
#include "ledger/ledger.h"
#include "verify/verify.h"

namespace lockstep::verify {

struct LedgerComparison {
  Verdict verdict;
  std::optional<int64_t> first_step;  // of the first differing record; none when one only ends earlier
};

// Identity first (else kNotComparable), then record by record.
LedgerComparison compare_ledgers(const ledger::Ledger& a, const ledger::Ledger& b,
                                 const VerifyOptions& options);

}  // namespace lockstep::verify
