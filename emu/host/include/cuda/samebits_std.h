// cuda::std is the C++ library of the host's compiler.
#pragma once
namespace std {}
namespace cuda {
namespace std { using namespace ::std; }
}  // namespace cuda
