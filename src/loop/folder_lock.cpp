// SPDX-License-Identifier: Apache-2.0
#include "loop/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/log.h"

namespace lockstep::loop {

bool same_folder(const std::string& a, const std::string& b) {
  struct stat left {};
  struct stat right {};
  if (::stat(a.c_str(), &left) != 0 || ::stat(b.c_str(), &right) != 0) return false;
  return S_ISDIR(left.st_mode) && left.st_dev == right.st_dev && left.st_ino == right.st_ino;
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) ::close(fd_);
}

FolderLock::FolderLock(FolderLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FolderLock& FolderLock::operator=(FolderLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Result<FolderLock> FolderLock::take(const std::string& option, const std::string& folder) {
  FolderLock lock;
  lock.fd_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock.fd_ < 0) return invalid("{} {}: cannot open folder: {}", option, folder, std::strerror(errno));
  int failed = 0;
  do {
    failed = ::flock(lock.fd_, LOCK_EX | LOCK_NB);
  } while (failed != 0 && errno == EINTR);
  if (failed == 0) return lock;
  if (errno == EWOULDBLOCK) {
    return invalid(
        "{} {}: another start is writing in this folder; wait until it ends, stop it, or give another folder",
        option, folder);
  }
  log_warn("{} {}: this volume has no locks ({}); see to it that only one start writes here", option, folder,
           std::strerror(errno));
  return lock;
}

}  // namespace lockstep::loop
