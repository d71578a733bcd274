# SPDX-License-Identifier: Apache-2.0

"""Tests Horovod's operations on torch tensors, on any number of ranks."""

import copy
import pickle
import unittest
from unittest import mock

import ronda.torch as hvd
import torch
from torch_cases import (  # noqa: F401
    DTYPES,
    needs_other_ranks,
    of_all,
    of_rank,
    setUpModule,
    tearDownModule,
)

# Of Horovod 0.28.
NAMES = """
    Adasum Average Compression DistributedOptimizer HorovodInternalError Max Min ProcessSet
    Product Sum SyncBatchNorm add_process_set allgather allgather_async allgather_object
    allreduce allreduce_ allreduce_async allreduce_async_ alltoall alltoall_async barrier
    broadcast broadcast_ broadcast_async broadcast_async_ broadcast_object
    broadcast_optimizer_state broadcast_parameters ccl_built cross_rank cross_size cuda_built
    ddl_built elastic global_process_set gloo_built gloo_enabled grouped_allgather
    grouped_allgather_async grouped_allreduce grouped_allreduce_ grouped_allreduce_async
    grouped_allreduce_async_ grouped_reducescatter grouped_reducescatter_async init
    is_initialized join local_rank local_size mpi_built mpi_enabled mpi_threads_supported
    nccl_built poll rank reducescatter reducescatter_async remove_process_set rocm_built
    shutdown size sparse_allreduce_async start_timeline stop_timeline synchronize
""".split()


class JobTest(unittest.TestCase):
    def test_all_names_are_there(self):
        for name in NAMES:
            self.assertTrue(hasattr(hvd, name), name)
            self.assertIn(name, hvd.__all__)
        for name in ("is_homogeneous", "allreduce_async_", "Average", "synchronize", "size"):
            self.assertTrue(hasattr(hvd.mpi_ops, name), name)

    def test_ranks_and_what_was_built(self):
        hvd.init()  # twice is fine
        self.assertTrue(hvd.is_initialized())
        self.assertEqual((hvd.local_rank(), hvd.local_size()), (hvd.rank(), hvd.size()))
        self.assertEqual(hvd.device_index(), hvd.local_rank())
        with mock.patch("torch.cuda.device_count", return_value=2):
            self.assertEqual(hvd.device_index(), hvd.local_rank() % 2)
        self.assertEqual((hvd.cross_rank(), hvd.cross_size()), (0, 1))
        self.assertTrue(hvd.is_homogeneous())
        self.assertTrue(hvd.gloo_built() and hvd.gloo_enabled())
        self.assertFalse(
            hvd.mpi_enabled() or hvd.ddl_built() or hvd.ccl_built() or hvd.rocm_built()
        )
        self.assertTrue(hvd.mpi_built())
        self.assertIsInstance(hvd.nccl_built(), int)
        self.assertRaisesRegex(ValueError, "RONDA_MPI=1", hvd.mpi_threads_supported)
        self.assertRaisesRegex(ValueError, "ProcessSet", hvd.init, comm=[hvd.size()])

    def test_a_job_may_end_and_begin_again(self):
        rank = hvd.rank()
        hvd.grouped_allreduce([torch.ones(1)])
        hvd.shutdown()
        self.assertFalse(hvd.is_initialized())
        self.assertRaisesRegex(ValueError, "init", hvd.rank)
        self.assertRaises(ValueError, hvd.allreduce, torch.ones(1))
        hvd.init()
        self.assertEqual(hvd.rank(), rank)
        self.assertEqual(hvd.grouped_allreduce([torch.ones(1)], op=hvd.Sum)[0].item(), hvd.size())


class ReductionTest(unittest.TestCase):
    def test_every_dtype_and_operation(self):
        operations = {
            hvd.Sum: lambda all: all.sum(0, dtype=all.dtype),
            hvd.Min: lambda all: all.amin(0),
            hvd.Max: lambda all: all.amax(0),
            hvd.Product: lambda all: all.to(torch.float64).prod(0).to(all.dtype),
            hvd.Average: lambda all: (
                torch.div(all.sum(0, dtype=all.dtype), hvd.size(), rounding_mode="trunc")
                if not all.dtype.is_floating_point
                else all.to(torch.float64).mean(0).to(all.dtype)
            ),
        }
        for dtype in DTYPES:
            for op, expected in operations.items():
                if op == hvd.Product and dtype in (torch.uint8, torch.int8):
                    continue  # overflows
                with self.subTest(dtype=dtype, op=op.name):
                    own, want = of_rank(hvd.rank(), dtype=dtype), expected(of_all(dtype=dtype))
                    torch.testing.assert_close(hvd.allreduce(own, op=op), want)
                    torch.testing.assert_close(own, of_rank(hvd.rank(), dtype=dtype))
                    torch.testing.assert_close(hvd.allreduce_(own, op=op), want)
                    torch.testing.assert_close(own, want)

    def test_the_default_is_the_average_and_the_old_argument_warns(self):
        own, all = of_rank(hvd.rank()), of_all()
        torch.testing.assert_close(hvd.allreduce(own), all.mean(0))
        with self.assertWarns(DeprecationWarning):
            torch.testing.assert_close(hvd.allreduce(own, average=False), all.sum(0))
        with self.assertRaisesRegex(ValueError, "op and average"):
            hvd.allreduce(own, average=True, op=hvd.Sum)

    def test_handles(self):
        own, sum = of_rank(hvd.rank()), of_all().sum(0)
        named = [hvd.allreduce_async(own * k, name=f"t{k}", op=hvd.Sum) for k in range(20)]
        by_order = [hvd.allreduce_async_(own * k, op=hvd.Sum) for k in range(20)]
        for k, handle in reversed(list(enumerate(named + by_order))):
            torch.testing.assert_close(hvd.synchronize(handle), sum * (k % 20))
            self.assertTrue(hvd.poll(handle))
            self.assertIsNone(hvd.synchronize(handle), "the result has been fetched")
        dropped = hvd.allreduce_async(own, name="dropped")
        del dropped
        hvd.barrier()

    def test_handles_have_no_copies(self):
        handle = hvd.allreduce_async(of_rank(hvd.rank()), name="handle", op=hvd.Sum)
        for make_copy in (copy.copy, copy.deepcopy, pickle.dumps):
            with self.assertRaisesRegex(TypeError, "handle of an operation cannot be copied"):
                make_copy(handle)
        torch.testing.assert_close(hvd.synchronize(handle), of_all().sum(0))

    def test_factors(self):
        own, all = of_rank(hvd.rank(), dtype=torch.float64), of_all(dtype=torch.float64)
        result = hvd.allreduce(own, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
        torch.testing.assert_close(result, all.sum(0) * 1.5)
        result = hvd.grouped_allreduce([own], op=hvd.Average, postscale_factor=4.0)[0]
        torch.testing.assert_close(result, all.mean(0) * 4)
        with self.assertRaisesRegex(ValueError, "must not be 0"):
            hvd.allreduce(own, prescale_factor=0.0)

    def test_compression_casts(self):
        own, mean = of_rank(hvd.rank()) / 3, (of_all() / 3).mean(0)
        for compression in (hvd.Compression.fp16, hvd.Compression.bf16, hvd.Compression.none):
            result = hvd.allreduce(own, compression=compression)
            self.assertEqual(result.dtype, torch.float32)
            torch.testing.assert_close(result, mean, rtol=0.02, atol=0.02)
        whole = hvd.allreduce(of_rank(0, dtype=torch.int32), compression=hvd.Compression.fp16)
        self.assertEqual(whole.dtype, torch.int32)

    def test_groups(self):
        tensors = [of_rank(hvd.rank(), (k + 1,), dtype) for k, dtype in enumerate(DTYPES)]
        wants = [of_all((k + 1,), dtype).sum(0, dtype=dtype) for k, dtype in enumerate(DTYPES)]
        for result in (
            hvd.grouped_allreduce(tensors, op=hvd.Sum),
            hvd.grouped_allreduce(tensors, op=hvd.Sum, name="group"),
            hvd.grouped_allreduce_(tensors, op=hvd.Sum),
        ):
            self.assertEqual(len(result), len(wants))
            for each, want in zip(result, wants):
                torch.testing.assert_close(each, want)
        torch.testing.assert_close(tensors[3], wants[3])
        self.assertRaisesRegex(ValueError, "no tensors", hvd.grouped_allreduce, [])

    def test_sparse(self):
        rank, size = hvd.rank(), hvd.size()
        for sparse_dims, shape in ((1, (4 + size, 3)), (2, (4 + size, 3))):
            indices = torch.tensor([[rank, 3], [0, 2]][:sparse_dims])
            values = torch.ones((2, *shape[sparse_dims:])) * (rank + 1)
            own = torch.sparse_coo_tensor(indices, values, shape)
            for op in (hvd.Sum, hvd.Average):
                handle = hvd.sparse_allreduce_async(own, f"sparse{sparse_dims}", op)
                want = hvd.allreduce(own.to_dense(), op=op)
                self.assertTrue(callable(handle))
                torch.testing.assert_close(handle().to_dense(), want)

    def test_reducescatter(self):
        size, rank = hvd.size(), hvd.rank()
        for rows in (1, size, 3 * size + 1):
            own, sum = of_rank(rank, (rows, 2)), of_all((rows, 2)).sum(0)
            part = torch.tensor_split(sum, size)[rank]
            torch.testing.assert_close(hvd.reducescatter(own, op=hvd.Sum), part)
            torch.testing.assert_close(hvd.reducescatter(own), part / size)
            pair = hvd.grouped_reducescatter([own, own * 2], op=hvd.Sum, prescale_factor=0.5)
            torch.testing.assert_close(pair, [part / 2, part])
        self.assertRaisesRegex(ValueError, "scalar", hvd.reducescatter, torch.tensor(1.0))


class ExchangeTest(unittest.TestCase):
    def test_allgather_of_any_number_of_rows(self):
        size, rank = hvd.size(), hvd.rank()
        for dtype in [*DTYPES, torch.bool]:
            want = torch.cat([of_rank(r, (r, 2), dtype) for r in range(size)])
            torch.testing.assert_close(hvd.allgather(of_rank(rank, (rank, 2), dtype)), want)
        pair = hvd.grouped_allgather([of_rank(rank, (2,)), of_rank(rank, (rank + 1, 1))])
        torch.testing.assert_close(pair[0], of_all((2,)).flatten())
        self.assertEqual(len(pair[1]), size * (size + 1) // 2)
        self.assertRaises(ValueError, hvd.allgather, torch.tensor(1.0))

    def test_broadcast_from_every_rank(self):
        for dtype in [*DTYPES, torch.bool]:
            for root in range(hvd.size()):
                own = of_rank(hvd.rank(), dtype=dtype)
                torch.testing.assert_close(hvd.broadcast(own, root), of_rank(root, dtype=dtype))
                torch.testing.assert_close(own, of_rank(hvd.rank(), dtype=dtype))
                self.assertIs(hvd.broadcast_(own, root, name="b"), own)
                torch.testing.assert_close(own, of_rank(root, dtype=dtype))
        self.assertRaisesRegex(ValueError, "root", hvd.broadcast, torch.ones(1), hvd.size())

    def test_alltoall(self):
        size, rank = hvd.size(), hvd.rank()
        own = torch.arange(2 * size) + 100 * rank
        want = torch.cat([torch.arange(2 * rank, 2 * rank + 2) + 100 * r for r in range(size)])
        torch.testing.assert_close(hvd.alltoall(own), want)
        # Rank r sends r + `to` rows to rank `to`, and keeps its last row.
        splits = torch.tensor([rank + to for to in range(size)], dtype=torch.int32)
        rows = torch.full((int(splits.sum()) + 1, 2), float(rank))
        received, counts = hvd.alltoall(rows, splits)
        torch.testing.assert_close(counts, splits)
        want = torch.cat([torch.full((r + rank, 2), float(r)) for r in range(size)])
        torch.testing.assert_close(received, want)
        self.assertEqual(hvd.alltoall(rows, splits.tolist())[1].dtype, torch.int32)
        self.assertRaises(ValueError, hvd.alltoall, torch.ones(2), [3] * size)
        self.assertRaisesRegex(ValueError, "integers", hvd.alltoall, own, torch.ones(size))

    def test_join_and_barrier(self):
        rank, size = hvd.rank(), hvd.size()
        for step in range(rank + 1):
            mean = hvd.allreduce(torch.tensor([float(rank)]))
            want = sum(range(step, size)) / (size - step)
            torch.testing.assert_close(mean, torch.tensor([want]))
        self.assertEqual(hvd.join(), size - 1)
        hvd.barrier()
        torch.testing.assert_close(hvd.allreduce(torch.ones(2)), torch.ones(2))
        torch.testing.assert_close(hvd.grouped_allreduce([torch.ones(2)])[0], torch.ones(2))

    def test_objects(self):
        rank, size = hvd.rank(), hvd.size()
        for root in range(size):
            own = {"rank": rank, "data": [rank] * 10 * rank}
            want = {"rank": root, "data": [root] * 10 * root}
            self.assertEqual(hvd.broadcast_object(own if rank == root else None, root), want)
        self.assertEqual(hvd.allgather_object("x" * rank), ["x" * r for r in range(size)])
        self.assertEqual(hvd.broadcast_object(lambda: 7, name="function")(), 7)

    def test_process_sets(self):
        needs_other_ranks(self)
        first, odd = [0], list(range(1, hvd.size()))
        sets = [hvd.add_process_set(hvd.ProcessSet(ranks)) for ranks in (first, odd)]
        mine = sets[hvd.rank() > 0]
        self.assertTrue(mine.included())
        want = sum(mine.ranks) / mine.size()
        own = torch.tensor([float(hvd.rank())])
        torch.testing.assert_close(hvd.allreduce(own, process_set=mine), torch.tensor([want]))
        self.assertEqual(hvd.allgather(own, process_set=mine).tolist(), mine.ranks)
        root = mine.ranks[-1]
        self.assertEqual(hvd.broadcast(own, root, process_set=mine).item(), root)
        self.assertEqual(hvd.broadcast_object(hvd.rank(), root, process_set=mine), root)
        part = hvd.reducescatter(torch.ones(mine.size()), op=hvd.Sum, process_set=mine)
        self.assertEqual(part.tolist(), [mine.size()])
        hvd.barrier(mine)
        for each in sets:
            self.assertTrue(hvd.remove_process_set(each))
        with self.assertRaisesRegex(ValueError, "add_process_set"):
            hvd.allreduce(own, process_set=mine)


class GradientTest(unittest.TestCase):
    def gradient(self, function, own, weight=None):
        """Returns the gradient of the sum of function(own) * weight."""
        leaf = own.clone().requires_grad_()
        output = function(leaf)
        output = output if isinstance(output, torch.Tensor) else torch.cat(list(output))
        (output * (1 if weight is None else weight)).sum().backward()
        return leaf.grad

    def test_reductions(self):
        rank, size = hvd.rank(), hvd.size()
        own, weight = torch.randn(4, 2), float(rank + 1)
        mean = sum(range(1, size + 1)) / size
        ones = torch.ones_like(own)
        for op, want in ((hvd.Average, mean), (hvd.Sum, mean * size)):
            for function in (
                lambda t, op=op: hvd.allreduce(t, op=op),
                lambda t, op=op: hvd.grouped_allreduce([t[:2], t[2:]], op=op),
            ):
                torch.testing.assert_close(self.gradient(function, own, weight), ones * want)
        leaves = [torch.ones(2, requires_grad=True) for _ in range(3)]
        for each in hvd.grouped_allreduce(leaves, op=hvd.Sum):
            each.backward(torch.ones(2))  # one by one
        for leaf in leaves:
            torch.testing.assert_close(leaf.grad, torch.full((2,), float(size)))
        with self.assertRaisesRegex(NotImplementedError, "MAX"):
            self.gradient(lambda t: hvd.allreduce(t, op=hvd.Max), own)

    def test_reducescatter(self):
        # Row r goes to rank r, which multiplies it by r + 1.
        rank, size = hvd.rank(), hvd.size()
        rows = torch.arange(1.0, size + 1).unsqueeze(1)
        for op, factor in ((hvd.Average, 1), (hvd.Sum, size)):
            function = lambda t, op=op: hvd.reducescatter(t, op=op)  # noqa: E731
            gradient = self.gradient(function, torch.randn(size, 1), float(rank + 1))
            torch.testing.assert_close(gradient, rows * factor)
        both = lambda t: hvd.grouped_reducescatter([t, 2 * t])  # noqa: E731
        gradient = self.gradient(both, torch.randn(size, 1), float(rank + 1))
        torch.testing.assert_close(gradient, rows * 3)

    def test_exchanges(self):
        rank, size = hvd.rank(), hvd.size()
        mean = sum(range(1, size + 1)) / size
        own, weight = torch.randn(rank + 1, 2), float(rank + 1)
        ones = torch.ones_like(own)
        for function in (
            hvd.allgather,
            lambda t: hvd.grouped_allgather([t]),
        ):
            torch.testing.assert_close(self.gradient(function, own, weight), ones * mean)
        gradient = self.gradient(lambda t: hvd.broadcast(t, 0), torch.randn(3), weight)
        torch.testing.assert_close(gradient, torch.full((3,), mean if rank == 0 else 0.0))
        gradient = self.gradient(hvd.alltoall, torch.randn(size), weight)
        torch.testing.assert_close(gradient, torch.arange(1.0, size + 1))
        splits = [1] * size
        gradient = self.gradient(
            lambda t: hvd.alltoall(t, splits)[0], torch.randn(size + 1), weight
        )
        torch.testing.assert_close(gradient, torch.tensor([*range(1, size + 1), 0.0]))


class SecondDerivativesTest(unittest.TestCase):
    def second(self, function):
        own = torch.tensor([1.0 + hvd.rank(), 2.0], requires_grad=True)
        loss = (function(own) ** 3).sum() + (own**3).sum()
        (first,) = torch.autograd.grad(loss, own, create_graph=True)
        return torch.autograd.grad((first**2).sum(), own)[0]

    def test_of_a_group_equal_those_of_a_single_tensor(self):
        single = self.second(hvd.allreduce)
        grouped = self.second(lambda own: hvd.grouped_allreduce([own])[0])
        torch.testing.assert_close(grouped, single)

    def test_of_a_broadcast_exist_on_every_rank(self):
        own = torch.tensor([1.0 + hvd.rank(), 2.0])
        # The first derivative is 6 x^2 on the root, of which 3 x^2 are the mean over the ranks, and
        # 3 x^2 elsewhere. The mean has a gradient on the root only.
        expected = (72 * (1 + 1 / hvd.size()) if hvd.rank() == 0 else 36) * own**3
        got = self.second(lambda tensor: hvd.broadcast(tensor, 0))
        torch.testing.assert_close(got, expected)

    def test_of_batch_normalization_are_refused(self):
        needs_other_ranks(self)
        with self.assertRaisesRegex(RuntimeError, "no second derivatives"):
            self.second(lambda own: hvd.SyncBatchNorm(2)(own.view(1, 2)))


class MistakesTest(unittest.TestCase):
    def test_tensors_that_cannot_travel(self):
        for tensor, text in (
            (torch.ones(3, 2).t(), "contiguous"),
            (torch.ones(2, dtype=torch.complex64), "dtype is not supported"),
            (torch.ones(2).to_sparse(), "is not dense"),
            (torch.ones(2, device="meta"), "neither in host memory"),
        ):
            for function in (hvd.allreduce, hvd.allgather, hvd.reducescatter, hvd.alltoall):
                self.assertRaisesRegex(ValueError, text, function, tensor)
            self.assertRaisesRegex(ValueError, text, hvd.broadcast, tensor, 0)

    def test_names_in_flight(self):
        needs_other_ranks(self)
        # The other ranks submit the tensor "twice" only after rank 0 has got its error.
        if hvd.rank() == 0:
            handle = hvd.allreduce_async(torch.ones(2), name="twice")
            self.assertRaisesRegex(ValueError, "twice", hvd.allreduce, torch.ones(2), name="twice")
        hvd.barrier()
        if hvd.rank() > 0:
            handle = hvd.allreduce_async(torch.ones(2), name="twice")
        torch.testing.assert_close(hvd.synchronize(handle), torch.ones(2))

    def test_ranks_that_disagree(self):
        needs_other_ranks(self)
        rank = hvd.rank()
        for function, text in (
            (lambda: hvd.allreduce(torch.ones(2 + rank % 2), name="shapes"), "shapes"),
            (
                lambda: hvd.allreduce(torch.ones(2, dtype=DTYPES[rank % 2 + 6]), name="types"),
                "types",
            ),
            (lambda: hvd.allgather(torch.ones(2, 1 + rank % 2), name="rows"), "rows"),
            (lambda: hvd.broadcast(torch.ones(2), rank % 2, name="roots"), "roots"),
            (lambda: hvd.grouped_allreduce([torch.ones(2 + rank % 2)], name="group"), "group"),
        ):
            with self.assertRaisesRegex(hvd.HorovodInternalError, text):
                function()
        torch.testing.assert_close(hvd.allreduce(torch.ones(2)), torch.ones(2))


if __name__ == "__main__":
    unittest.main()
