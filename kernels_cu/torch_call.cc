// The way of an operator's call from torch to the kernel's C function.
//
// A call's signature is all of it but what its tensors hold and where they lie: shapes, strides, dtypes, devices, alignment, numbers, what
// is left out, and how a tensor that is written overlaps others. A new signature asks Python (torch_call.py, as the operator of the same
// name in samebits_prepare), which checks the call and raises, or answers with a plan; one seen before takes its plan from a table.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

using Key = std::vector<int64_t>;
using CurrentStream = int32_t (*)(int32_t device, void** stream);

constexpr size_t kSignatures = 4096;  // that an operator remembers
constexpr int64_t kVector = 16;       // bytes, of the widest access: alignment counts up to it

CurrentStream current_stream = nullptr;  // where torch has CUDA

struct Hash {
    size_t operator()(const Key& key) const {
        uint64_t hash = key.size();
        for (int64_t word : key) {
            hash = (hash ^ uint64_t(word)) * 0x9E3779B97F4A7C15u;
            hash ^= hash >> 32;
        }
        return hash;
    }
};

// What the calls of one signature share (torch_call.Plan).
struct Plan {
    int (*entry)(const void* params, void* stream);  // the kernel's C function
    const char* (*error)();                          // the text of its last error, or null: a CUDA error's number is all there is
    c10::Device device{c10::DeviceType::CPU};
    std::vector<int64_t> params;                       // the parameter struct, without addresses
    std::vector<int64_t> tensors;                      // of each tensor given: the word of its address
    std::vector<std::pair<int64_t, int64_t>> spaces;   // of each workspace left out: that word, and its offset in one allocation
    int64_t space = 0;                                 // bytes of the allocation

    explicit Plan(const std::vector<int64_t>& words) {
        const int64_t* next = words.data();
        const auto list = [&next](std::vector<int64_t>& to) {
            const int64_t size = *next++;
            to.assign(next, next + size);
            next += size;
        };
        entry = reinterpret_cast<decltype(entry)>(*next++);
        error = reinterpret_cast<decltype(error)>(*next++);
        if (const int64_t index = *next++; index >= 0) device = {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index)};
        space = *next++;
        list(params);
        list(tensors);
        std::vector<int64_t> pairs;
        list(pairs);
        for (size_t i = 0; i < pairs.size(); i += 2) spaces.emplace_back(pairs[i], pairs[i + 1]);
    }

    // Starts the kernel on the current stream of its device. Throws std::runtime_error with the launch's error.
    void run(const std::string& name, const std::vector<int64_t>& addresses) const {
        const c10::DeviceGuard guard(device);
        void* stream = nullptr;
        if (device.is_cuda() && current_stream(device.index(), &stream)) throw std::runtime_error(name + ": torch has no current stream");
        std::vector<int64_t> filled(params);
        for (size_t i = 0; i < tensors.size(); ++i) filled[tensors[i]] = addresses[i];
        c10::DataPtr held;  // until the kernel is on the stream: what torch's allocator then gives away is used after it
        if (space) {
            held = c10::GetAllocator(device.type())->allocate(space);
            for (const auto& [word, offset] : spaces) filled[word] = reinterpret_cast<int64_t>(held.get()) + offset;
        }
        if (const int code = entry(filled.data(), stream)) {
            throw std::runtime_error(name + ": " + (error ? error() : "CUDA error " + std::to_string(code)));
        }
    }
};

// The tensors of a call, and its signature.
struct Call {
    struct Memory {
        int64_t begin, end;
        bool written;
    };

    Key key;
    std::vector<int64_t> addresses;

    Call(const c10::FunctionSchema& schema, at::ArrayRef<c10::IValue> values) {
        key.reserve(128);
        addresses.reserve(values.size());
        std::vector<Memory> memory;
        memory.reserve(values.size());
        for (size_t i = 0; i < values.size(); ++i) {
            const c10::IValue& value = values[i];
            if (value.isTensor()) {
                const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
                memory.push_back(add(value.toTensor(), alias && alias->isWrite()));
            } else if (value.isDouble()) {
                const double number = value.toDouble();
                key.insert(key.end(), {'d', 0});
                std::memcpy(&key.back(), &number, sizeof number);  // 0.0 == -0.0
            } else if (value.isNone()) {
                key.push_back('n');
            } else {
                key.insert(key.end(), {'i', value.isBool() ? value.toBool() : value.toInt()});
            }
        }
        for (size_t i = 0; i < memory.size(); ++i) {
            for (size_t j = 0; j < memory.size(); ++j) {
                const bool once = i != j && memory[i].written && (!memory[j].written || i < j);
                if (once && memory[i].begin < memory[j].end && memory[j].begin < memory[i].end) {
                    key.insert(key.end(), {int64_t(i), int64_t(j), memory[j].begin - memory[i].begin});
                }
            }
        }
    }

  private:
    Memory add(const at::Tensor& tensor, bool written) {
        const auto begin = reinterpret_cast<int64_t>(written ? tensor.mutable_data_ptr() : tensor.const_data_ptr());
        const auto sizes = tensor.sizes(), strides = tensor.strides();
        const c10::Device device = tensor.device();
        addresses.push_back(begin);
        key.insert(key.end(), {'t', tensor.dim(), int64_t(tensor.scalar_type()), int64_t(device.type()), device.index(), begin % kVector});
        key.insert(key.end(), sizes.begin(), sizes.end());
        key.insert(key.end(), strides.begin(), strides.end());
        if (tensor.numel() == 0) return {begin, begin, written};
        int64_t last = 0;
        for (int64_t axis = 0; axis < tensor.dim(); ++axis) last += (sizes[axis] - 1) * strides[axis];
        return {begin, begin + (last + 1) * int64_t(tensor.element_size()), written};
    }
};

// A kernel's operator for one dispatch key.
class Operator : public c10::OperatorKernel {
  public:
    Operator(const std::string& name, bool cpu)
            : name_(name), cpu_(cpu), prepare_(c10::Dispatcher::singleton().findSchemaOrThrow(("samebits_prepare::" + name).c_str(), "")) {}

    void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
        const c10::FunctionSchema& schema = op.schema();
        const auto values = torch::jit::last(*stack, schema.arguments().size());
        const Call call(schema, values);
        const c10::IValue& checked = values.back();
        if (checked.isNone() ? cpu_ : checked.toBool()) {  // Python alone looks at values
            prepare(keys, values)->run(name_, call.addresses);
        } else {
            plan(call.key, keys, values)->run(name_, call.addresses);
        }
        torch::jit::drop(*stack, values.size());
    }

  private:
    std::shared_ptr<const Plan> prepare(c10::DispatchKeySet keys, at::ArrayRef<c10::IValue> values) {
        torch::jit::Stack stack(values.begin(), values.end());
        prepare_.redispatchBoxed(keys, &stack);
        return std::make_shared<const Plan>(stack.back().toIntVector());
    }

    std::shared_ptr<const Plan> plan(const Key& key, c10::DispatchKeySet keys, at::ArrayRef<c10::IValue> values) {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            if (const auto found = seen_.find(key); found != seen_.end()) return found->second;
        }
        auto made = prepare(keys, values);  // outside of the lock: Python may wait for other threads
        const std::lock_guard<std::mutex> lock(mutex_);
        if (seen_.size() >= kSignatures) seen_.clear();
        seen_.insert_or_assign(key, made);
        return made;
    }

    const std::string name_;
    const bool cpu_;
    const c10::OperatorHandle prepare_;
    std::mutex mutex_;
    std::unordered_map<Key, std::shared_ptr<const Plan>, Hash> seen_;
};

}  // namespace

// Makes samebits::name, which is defined, run by plans on the CPU or on CUDA. `stream`: aoti_torch_get_current_cuda_stream, or null.
extern "C" void samebits_register(const char* name, bool cpu, CurrentStream stream) {
    static auto& registered = *new std::vector<c10::RegistrationHandleRAII>;  // until the process ends
    current_stream = stream;
    registered.push_back(c10::Dispatcher::singleton().registerImpl(
            {std::string("samebits::") + name, ""}, cpu ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA,
            c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Operator>(name, cpu)), std::nullopt, nullptr, "samebits"));
}
