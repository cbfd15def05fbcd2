// SPDX-License-Identifier: Apache-2.0
#include "loop/event_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "core/bytes.h"

namespace lockstep::loop {
namespace {

TEST(EventFile, Crc32cOfRfc3720) {  // section B.4
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43U);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
}

TEST(EventFile, FramesAndScalarsAreTheWireFormat) {
  // wall_time 1.0, step 300, one value "a" = 0.5, by hand from the protocol buffer encoding.
  const std::string event = scalar_event(1.0, 300, {{"a", 0.5F}});
  EXPECT_EQ(to_hex(event.data(), event.size()), "09000000000000f03f10ac022a0a0a080a0161150000003f");
  const std::string frame = event_frame(event);
  EXPECT_EQ(load_le<uint64_t>(frame.data()), event.size());
  EXPECT_EQ(frame.size(), 8 + 4 + event.size() + 4);
}

TEST(EventFile, WritesAFileThatBeginsWithItsVersion) {
  const std::string folder = ::testing::TempDir() + "lockstep_events_" + std::to_string(::getpid());
  {
    Result<EventFile> file = EventFile::create(folder, 7);
    ASSERT_TRUE(file.ok()) << file.status().message();
    ASSERT_TRUE(file.value().add(7, {{"train/loss", 1.5F}}).ok());
  }
  const std::vector<std::string> names = list_directory(folder).value();
  ASSERT_EQ(names.size(), 1U);
  const std::string text = read_file(join_path(folder, names[0])).value();
  EXPECT_NE(text.find("brain.Event:2"), std::string::npos);
  EXPECT_NE(text.find("train/loss"), std::string::npos);
  // Every frame's checks agree.
  size_t at = 0;
  int frames = 0;
  while (at < text.size()) {
    const auto size = static_cast<size_t>(load_le<uint64_t>(text.data() + at));
    ASSERT_LE(at + 16 + size, text.size());
    EXPECT_EQ(event_frame(text.substr(at + 12, size)), text.substr(at, size + 16));
    at += size + 16;
    ++frames;
  }
  EXPECT_EQ(frames, 3);
  ASSERT_TRUE(remove_all(folder).ok());
}

}  // namespace
}  // namespace lockstep::loop
