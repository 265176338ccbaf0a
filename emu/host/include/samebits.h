// Included before the first line of every .cu: the CUDA language and the part of its runtime that emu/host models.
#pragma once

#include "samebits/types.h"
#include "samebits/thread.h"
#include "samebits/warp.h"
#include "samebits/atomics.h"
#include "samebits/async.h"
#include "samebits/mbarrier.h"
#include "samebits/cluster.h"
#include "samebits/intrinsics.h"
#include "samebits/math.h"
#include "samebits/more_math.h"
#include "samebits/runtime_api.h"
#include "samebits/launch.h"
#include "samebits/runtime_more.h"
#ifdef SAMEBITS_PTX
#include "samebits/ptx.h"
#endif
