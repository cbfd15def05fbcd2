// SPDX-License-Identifier: Apache-2.0
// One start at a time writes in a folder.
#pragma once

#include <string>

#include "core/status.h"

namespace lockstep::loop {

// Whether both are there and are one folder, however they are named.
bool same_folder(const std::string& a, const std::string& b);

// flock(2) on the folder itself: no file is left in it, and it is free again however the process ends.
class FolderLock {
 public:
  FolderLock() = default;
  ~FolderLock();
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&& other) noexcept;
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // `option` names the folder in messages. kInvalid: another lock is held on it, or it is not there. On a
  // volume that has no locks: a warning, and a lock that keeps nobody out.
  static Result<FolderLock> take(const std::string& option, const std::string& folder);
  bool held() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace lockstep::loop
