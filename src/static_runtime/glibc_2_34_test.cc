// Exceptions in a program that links the unwinder statically, as `fovea` does, on every path that crosses
// objects: its own code, threads, frames of glibc, and frames of a library loaded at run time.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

struct CountsDestruction {
  std::atomic<int>* count;
  ~CountsDestruction() { ++*count; }
};

[[gnu::noinline]] int throw_at_depth(int depth, std::atomic<int>* destroyed) {
  const CountsDestruction frame{destroyed};
  if (depth == 0) throw std::runtime_error("from the bottom");
  return throw_at_depth(depth - 1, destroyed) + 1;
}

int caught_at_depth(int depth) {
  std::atomic<int> destroyed = 0;
  try {
    throw_at_depth(depth, &destroyed);
  } catch (const std::runtime_error& error) {
    return std::string(error.what()) == "from the bottom" ? destroyed.load() : -1;
  }
  return -2;
}

TEST(Exceptions, UnwindTheProgramsOwnFrames) {
  EXPECT_EQ(caught_at_depth(0), 1);
  EXPECT_EQ(caught_at_depth(500), 501);
}

TEST(Exceptions, ComeOutOfTheStandardLibrary) {
  EXPECT_THROW((void)std::stoi("not a number"), std::invalid_argument);
  EXPECT_THROW((void)std::vector<int>().at(1), std::out_of_range);
}

TEST(Exceptions, SayThatMemoryIsRefused) {
  EXPECT_THROW((void)std::make_unique<char[]>(~size_t{0} >> 1), std::bad_alloc);
}

int throwing_compare(const void*, const void*) {
  throw std::runtime_error("in qsort");
}

TEST(Exceptions, PassFramesOfGlibc) {
  int numbers[] = {2, 1, 3};
  EXPECT_THROW(std::qsort(numbers, 3, sizeof(int), throwing_compare), std::runtime_error);
}

TEST(Exceptions, CrossThreads) {
  std::exception_ptr carried;
  std::thread([&] {
    try {
      throw std::runtime_error("carried");
    } catch (...) {
      carried = std::current_exception();
    }
  }).join();
  EXPECT_THROW(std::rethrow_exception(carried), std::runtime_error);
}

using Callback = void (*)(void*);
using CallThrough = void (*)(Callback, void*);

void throw_from_callback(void* text) {
  throw std::runtime_error(static_cast<const char*>(text));
}

void throw_through(void* library) {
  const auto call_through = reinterpret_cast<CallThrough>(dlsym(library, "call_through"));
  ASSERT_NE(call_through, nullptr);
  char text[] = "through the library";
  try {
    call_through(throw_from_callback, text);
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), text);
  }
}

TEST(Exceptions, PassFramesOfALibraryLoadedLater) {
  void* library = dlopen(FOVEA_CALL_THROUGH, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  throw_through(library);
  dlclose(library);
}

TEST(Exceptions, InManyThreadsWhileLibrariesComeAndGo) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 200;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i)
        wrong += caught_at_depth(20) != 21;
    });
  for (int i = 0; i < kRounds; ++i) {
    void* library = dlopen(FOVEA_CALL_THROUGH, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    throw_through(library);
    dlclose(library);
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ExceptionsDeathTest, ThatNoOneCatchesTerminate) {
  EXPECT_DEATH(std::thread([] { throw std::runtime_error("nobody's"); }).join(), "nobody's");
}

TEST(RandomDevice, DrawsDifferentNumbers) {
  std::random_device device;
  std::set<unsigned> drawn;
  for (int i = 0; i < 64; ++i)
    drawn.insert(device());
  EXPECT_GT(drawn.size(), 60u);  // two of 64 alike: once in two million runs
}

}  // namespace
