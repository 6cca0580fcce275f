"""Tensors print as PyTorch prints them. The texts were recorded from PyTorch 2.13; `torch` in a case stands for this library."""
import pytest
import rushlight as rl

REPRS = [
    ('torch.tensor(1.5)', 'tensor(1.5000)'),
    ('torch.tensor(3)', 'tensor(3)'),
    ('torch.tensor(True)', 'tensor(True)'),
    ('torch.tensor([1., 2, 3])', 'tensor([1., 2., 3.])'),
    ('torch.tensor([1.5, 2, 3])', 'tensor([1.5000, 2.0000, 3.0000])'),
    ('torch.tensor([1e10, 1.])', 'tensor([1.0000e+10, 1.0000e+00])'),
    ('torch.tensor([1e-5, 1.])', 'tensor([1.0000e-05, 1.0000e+00])'),
    ('torch.tensor([1e-4, 1.])', 'tensor([1.0000e-04, 1.0000e+00])'),
    ('torch.tensor([0.00012345])', 'tensor([0.0001])'),
    ('torch.tensor([1e8, 1e8])', 'tensor([100000000., 100000000.])'),
    ('torch.tensor([1e9, 2.])', 'tensor([1.0000e+09, 2.0000e+00])'),
    ('torch.tensor([123456789.])', 'tensor([1.2346e+08])'),
    ('torch.tensor([1e5, 0.1])', 'tensor([1.0000e+05, 1.0000e-01])'),
    ('torch.tensor([1e3, 0.1])', 'tensor([1.0000e+03, 1.0000e-01])'),
    ('torch.tensor([99999., 0.5])', 'tensor([9.9999e+04, 5.0000e-01])'),
    ('torch.tensor([1000., 1.])', 'tensor([1000.,    1.])'),
    ('torch.tensor([nan, 1., inf, -inf])', 'tensor([nan, 1., inf, -inf])'),
    ('torch.tensor([nan, 1.5])', 'tensor([   nan, 1.5000])'),
    ('torch.tensor([nan])', 'tensor([nan])'),
    ('torch.tensor([inf, 1e9, 1.5])', 'tensor([       inf, 1.0000e+09, 1.5000e+00])'),
    ('torch.tensor([0.])', 'tensor([0.])'),
    ('torch.tensor([-0.])', 'tensor([-0.])'),
    ('torch.tensor([-1.5, 2])', 'tensor([-1.5000,  2.0000])'),
    ('torch.tensor([1, 20, -300])', 'tensor([   1,   20, -300])'),
    ('torch.tensor([True, False])', 'tensor([ True, False])'),
    ('torch.tensor([])', 'tensor([])'),
    ('torch.zeros(0, 3)', 'tensor([], size=(0, 3))'),
    ('torch.zeros(2, 0, dtype=torch.int64)', 'tensor([], size=(2, 0), dtype=torch.int64)'),
    ('torch.zeros(3, 0, 2)', 'tensor([], size=(3, 0, 2))'),
    ('torch.tensor([], dtype=torch.int64)', 'tensor([], dtype=torch.int64)'),
    ('torch.tensor([], dtype=torch.float64)', 'tensor([], dtype=torch.float64)'),
    ('torch.tensor([1.], dtype=torch.float64)', 'tensor([1.], dtype=torch.float64)'),
    ('torch.tensor([1.], dtype=torch.float16)', 'tensor([1.], dtype=torch.float16)'),
    ('torch.tensor([1.5], dtype=torch.bfloat16)', 'tensor([1.5000], dtype=torch.bfloat16)'),
    ('torch.tensor([65504.], dtype=torch.float16)', 'tensor([65504.], dtype=torch.float16)'),
    ('torch.tensor([1], dtype=torch.int32)', 'tensor([1], dtype=torch.int32)'),
    ('torch.tensor([1], dtype=torch.uint8)', 'tensor([1], dtype=torch.uint8)'),
    ('torch.tensor([-128, 127], dtype=torch.int8)', 'tensor([-128,  127], dtype=torch.int8)'),
    ('torch.tensor([-9223372036854775808, 1])', 'tensor([-9223372036854775808,                    1])'),
    ('torch.arange(2000)', 'tensor([   0,    1,    2,  ..., 1997, 1998, 1999])'),
    ('torch.arange(50)',
     'tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,\n'
     '        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35,\n'
     '        36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49])'),
    ('torch.arange(1001.)', 'tensor([   0.,    1.,    2.,  ...,  998.,  999., 1000.])'),
    ('torch.arange(10000).reshape(100, 100)',
     'tensor([[   0,    1,    2,  ...,   97,   98,   99],\n'
     '        [ 100,  101,  102,  ...,  197,  198,  199],\n'
     '        [ 200,  201,  202,  ...,  297,  298,  299],\n'
     '        ...,\n'
     '        [9700, 9701, 9702,  ..., 9797, 9798, 9799],\n'
     '        [9800, 9801, 9802,  ..., 9897, 9898, 9899],\n'
     '        [9900, 9901, 9902,  ..., 9997, 9998, 9999]])'),
    ('torch.arange(4 * 4 * 400).reshape(4, 4, 400)',
     'tensor([[[   0,    1,    2,  ...,  397,  398,  399],\n'
     '         [ 400,  401,  402,  ...,  797,  798,  799],\n'
     '         [ 800,  801,  802,  ..., 1197, 1198, 1199],\n'
     '         [1200, 1201, 1202,  ..., 1597, 1598, 1599]],\n'
     '\n'
     '        [[1600, 1601, 1602,  ..., 1997, 1998, 1999],\n'
     '         [2000, 2001, 2002,  ..., 2397, 2398, 2399],\n'
     '         [2400, 2401, 2402,  ..., 2797, 2798, 2799],\n'
     '         [2800, 2801, 2802,  ..., 3197, 3198, 3199]],\n'
     '\n'
     '        [[3200, 3201, 3202,  ..., 3597, 3598, 3599],\n'
     '         [3600, 3601, 3602,  ..., 3997, 3998, 3999],\n'
     '         [4000, 4001, 4002,  ..., 4397, 4398, 4399],\n'
     '         [4400, 4401, 4402,  ..., 4797, 4798, 4799]],\n'
     '\n'
     '        [[4800, 4801, 4802,  ..., 5197, 5198, 5199],\n'
     '         [5200, 5201, 5202,  ..., 5597, 5598, 5599],\n'
     '         [5600, 5601, 5602,  ..., 5997, 5998, 5999],\n'
     '         [6000, 6001, 6002,  ..., 6397, 6398, 6399]]])'),
    ('torch.arange(24.).reshape(2, 3, 4)',
     'tensor([[[ 0.,  1.,  2.,  3.],\n'
     '         [ 4.,  5.,  6.,  7.],\n'
     '         [ 8.,  9., 10., 11.]],\n'
     '\n'
     '        [[12., 13., 14., 15.],\n'
     '         [16., 17., 18., 19.],\n'
     '         [20., 21., 22., 23.]]])'),
    ('torch.arange(36.).reshape(2, 3, 3, 2)',
     'tensor([[[[ 0.,  1.],\n'
     '          [ 2.,  3.],\n'
     '          [ 4.,  5.]],\n'
     '\n'
     '         [[ 6.,  7.],\n'
     '          [ 8.,  9.],\n'
     '          [10., 11.]],\n'
     '\n'
     '         [[12., 13.],\n'
     '          [14., 15.],\n'
     '          [16., 17.]]],\n'
     '\n'
     '\n'
     '        [[[18., 19.],\n'
     '          [20., 21.],\n'
     '          [22., 23.]],\n'
     '\n'
     '         [[24., 25.],\n'
     '          [26., 27.],\n'
     '          [28., 29.]],\n'
     '\n'
     '         [[30., 31.],\n'
     '          [32., 33.],\n'
     '          [34., 35.]]]])'),
    ('torch.arange(30.)',
     'tensor([ 0.,  1.,  2.,  3.,  4.,  5.,  6.,  7.,  8.,  9., 10., 11., 12., 13.,\n'
     '        14., 15., 16., 17., 18., 19., 20., 21., 22., 23., 24., 25., 26., 27.,\n'
     '        28., 29.])'),
    ('torch.arange(30.) / 7',
     'tensor([0.0000, 0.1429, 0.2857, 0.4286, 0.5714, 0.7143, 0.8571, 1.0000, 1.1429,\n'
     '        1.2857, 1.4286, 1.5714, 1.7143, 1.8571, 2.0000, 2.1429, 2.2857, 2.4286,\n'
     '        2.5714, 2.7143, 2.8571, 3.0000, 3.1429, 3.2857, 3.4286, 3.5714, 3.7143,\n'
     '        3.8571, 4.0000, 4.1429])'),
    ('torch.tensor([[1., 2], [3, 4]])',
     'tensor([[1., 2.],\n'
     '        [3., 4.]])'),
    ('torch.tensor([[1e-10, 1.], [3, 4]])',
     'tensor([[1.0000e-10, 1.0000e+00],\n'
     '        [3.0000e+00, 4.0000e+00]])'),
    ('torch.tensor([[True, False], [False, True]])',
     'tensor([[ True, False],\n'
     '        [False,  True]])'),
    ('torch.zeros(1, 1, 1)', 'tensor([[[0.]]])'),
    ('torch.tensor([1e38, 1e-38])', 'tensor([1.0000e+38, 1.0000e-38])'),
    ('torch.tensor([1e-20])', 'tensor([1.0000e-20])'),
    ('torch.tensor([12345.678])', 'tensor([12345.6777])'),
    ('torch.tensor(12345.678)', 'tensor(12345.6777)'),
    ('torch.tensor(1e-10)', 'tensor(1.0000e-10)'),
    ('torch.tensor(1e10)', 'tensor(1.0000e+10)'),
    ('torch.tensor(nan)', 'tensor(nan)'),
    ('torch.tensor(inf)', 'tensor(inf)'),
    ('torch.tensor(0.1, dtype=torch.float64)', 'tensor(0.1000, dtype=torch.float64)'),
    ('torch.tensor([0.1, 100000.], dtype=torch.float64)', 'tensor([1.0000e-01, 1.0000e+05], dtype=torch.float64)'),
    ('torch.tensor([1.0000001, 2.])', 'tensor([1.0000, 2.0000])'),
    ('torch.tensor([10., 200.5])', 'tensor([ 10.0000, 200.5000])'),
    ('torch.tensor([9999999.])', 'tensor([9999999.])'),
    ('torch.tensor([0.99999999])', 'tensor([1.])'),
    ('torch.zeros(2, 1001)',
     'tensor([[0., 0., 0.,  ..., 0., 0., 0.],\n'
     '        [0., 0., 0.,  ..., 0., 0., 0.]])'),
    ('torch.zeros(2, 3).t()',
     'tensor([[0., 0.],\n'
     '        [0., 0.],\n'
     '        [0., 0.]])'),
    ('torch.ones(2, 3).expand(4, 2, 3)',
     'tensor([[[1., 1., 1.],\n'
     '         [1., 1., 1.]],\n'
     '\n'
     '        [[1., 1., 1.],\n'
     '         [1., 1., 1.]],\n'
     '\n'
     '        [[1., 1., 1.],\n'
     '         [1., 1., 1.]],\n'
     '\n'
     '        [[1., 1., 1.],\n'
     '         [1., 1., 1.]]])'),
    ('torch.ones(2, requires_grad=True)', 'tensor([1., 1.], requires_grad=True)'),
    ('torch.ones(2, requires_grad=True) * 2', 'tensor([2., 2.], grad_fn=<MulBackward0>)'),
    ('torch.ones((), requires_grad=True) * 2', 'tensor(2., grad_fn=<MulBackward0>)'),
    ('torch.ones(2, requires_grad=True)[0]', 'tensor(1., grad_fn=<SelectBackward0>)'),
    ('torch.tensor([1.], dtype=torch.float64, requires_grad=True)', 'tensor([1.], dtype=torch.float64, requires_grad=True)'),
    ('torch.arange(18., requires_grad=True) * 1',
     'tensor([ 0.,  1.,  2.,  3.,  4.,  5.,  6.,  7.,  8.,  9., 10., 11., 12., 13.,\n'
     '        14., 15., 16., 17.], grad_fn=<MulBackward0>)'),
    ('torch.arange(12., dtype=torch.float64, requires_grad=True).reshape(1, 12)',
     'tensor([[ 0.,  1.,  2.,  3.,  4.,  5.,  6.,  7.,  8.,  9., 10., 11.]],\n'
     '       dtype=torch.float64, grad_fn=<ViewBackward0>)'),
    ('torch.zeros(0, 2, requires_grad=True)', 'tensor([], size=(0, 2), requires_grad=True)'),
    ('torch.nn.Parameter(torch.ones(2))',
     'Parameter containing:\n'
     'tensor([1., 1.], requires_grad=True)'),
    ('torch.nn.Parameter(torch.zeros(2, 2))',
     'Parameter containing:\n'
     'tensor([[0., 0.],\n'
     '        [0., 0.]], requires_grad=True)'),
    ('torch.Size([2, 3])', 'torch.Size([2, 3])'),
    ('torch.Size([])', 'torch.Size([])'),
    ('torch.float32', 'torch.float32'),
    ('torch.device("cpu")', "device(type='cpu')"),
]
OPTIONS = [
    ({'precision': 2}, 'torch.tensor([1.23456, 2.])',
     'tensor([1.23, 2.00])'),
    ({'sci_mode': True}, 'torch.tensor([1.23456, 2.])',
     'tensor([1.2346e+00, 2.0000e+00])'),
    ({'sci_mode': False}, 'torch.tensor([1e10, 1e-10])',
     'tensor([10000000000.0000,           0.0000])'),
    ({'linewidth': 40}, 'torch.arange(30.)',
     'tensor([ 0.,  1.,  2.,  3.,  4.,  5.,\n'
     '         6.,  7.,  8.,  9., 10., 11.,\n'
     '        12., 13., 14., 15., 16., 17.,\n'
     '        18., 19., 20., 21., 22., 23.,\n'
     '        24., 25., 26., 27., 28., 29.])'),
    ({'threshold': 5}, 'torch.arange(10)',
     'tensor([0, 1, 2,  ..., 7, 8, 9])'),
    ({'threshold': 5, 'edgeitems': 1}, 'torch.arange(100).reshape(10, 10)',
     'tensor([[ 0,  ...,  9],\n'
     '        ...,\n'
     '        [90,  ..., 99]])'),
    ({'profile': 'short'}, 'torch.arange(2000.) / 3',
     'tensor([0.00e+00, 3.33e-01,  ..., 6.66e+02, 6.66e+02])'),
    ({'edgeitems': 2, 'threshold': 10}, 'torch.arange(300.).reshape(3, 10, 10)',
     'tensor([[[  0.,   1.,  ...,   8.,   9.],\n'
     '         [ 10.,  11.,  ...,  18.,  19.],\n'
     '         ...,\n'
     '         [ 80.,  81.,  ...,  88.,  89.],\n'
     '         [ 90.,  91.,  ...,  98.,  99.]],\n'
     '\n'
     '        [[100., 101.,  ..., 108., 109.],\n'
     '         [110., 111.,  ..., 118., 119.],\n'
     '         ...,\n'
     '         [180., 181.,  ..., 188., 189.],\n'
     '         [190., 191.,  ..., 198., 199.]],\n'
     '\n'
     '        [[200., 201.,  ..., 208., 209.],\n'
     '         [210., 211.,  ..., 218., 219.],\n'
     '         ...,\n'
     '         [280., 281.,  ..., 288., 289.],\n'
     '         [290., 291.,  ..., 298., 299.]]])'),
    ({'profile': 'full', 'linewidth': 120}, 'torch.arange(30)',
     'tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27,\n'
     '        28, 29])'),
    ({'precision': 10}, 'torch.tensor([0.1, 0.2], dtype=torch.float64)',
     'tensor([0.1000000000, 0.2000000000], dtype=torch.float64)'),
    ({'linewidth': 60}, 'torch.arange(12., requires_grad=True) * 1',
     'tensor([ 0.,  1.,  2.,  3.,  4.,  5.,  6.,  7.,  8.,  9.,\n'
     '        10., 11.], grad_fn=<MulBackward0>)'),
    ({'threshold': 0}, 'torch.zeros(2, 2)',
     'tensor([[0., 0.],\n'
     '        [0., 0.]])'),
    ({'edgeitems': 0, 'threshold': 1}, 'torch.arange(5)',
     'tensor([...], size=(5,))'),
]
FORMATS = [
    ('torch.tensor(1.23456)', '.2f', '1.23'),
    ('torch.tensor(3)', '', '3'),
    ('torch.tensor(3)', '5d', '    3'),
    ('torch.tensor([1., 2.])', '', 'tensor([1., 2.])'),
    ('torch.tensor(1.5, requires_grad=True)', '', '1.5'),
    ('torch.tensor(1.5, requires_grad=True)', '.2f', '1.50'),
    ('torch.tensor(True)', '', 'True'),
    ('torch.tensor(2.5)', '>10', '       2.5'),
    ('torch.tensor(2.5)', 'e', '2.500000e+00'),
    ('torch.tensor(7)', '03d', '007'),
    ('torch.tensor(0.25)', '.0%', '25%'),
]



@pytest.fixture(autouse=True)
def as_torch():
    """The names of dtypes under the alias, as recorded."""
    rl._C._set_print_as_torch(True)
    yield
    rl._C._set_print_as_torch(False)
    rl.set_printoptions(profile="default")


def value(code):
    return eval(code, {"torch": rl, "nan": float("nan"), "inf": float("inf")})


@pytest.mark.parametrize("code, text", REPRS, ids=[c for c, _ in REPRS])
def test_repr(code, text):
    assert repr(value(code)) == text
    if isinstance(value(code), rl.Tensor):
        assert str(value(code)) == text


@pytest.mark.parametrize("options, code, text", OPTIONS, ids=[f"{o} {c}" for o, c, _ in OPTIONS])
def test_options(options, code, text):
    rl.set_printoptions(**options)
    assert repr(value(code)) == text


@pytest.mark.parametrize("code, spec, text", FORMATS, ids=[f"{c}:{s}" for c, s, _ in FORMATS])
def test_format(code, spec, text):
    assert format(value(code), spec) == text


def test_format_of_more_than_one_element():
    for t in (rl.ones(2), rl.ones(1)):
        with pytest.raises(TypeError, match=r"unsupported format string passed to Tensor.__format__"):
            format(t, ".3f")


def test_subclass_and_own_prefix():
    class MyTensor(rl.Tensor):
        pass

    assert repr(rl.ones(2).as_subclass(MyTensor)) == "MyTensor([1., 1.])"


def test_options_are_put_back():
    before = rl.get_printoptions()
    with rl._tensor_str.printoptions(precision=1, threshold=2):
        assert repr(rl.tensor([1.25])) == "tensor([1.2])"
        assert rl.get_printoptions()["threshold"] == 2
    assert rl.get_printoptions() == before == {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": None}
    with pytest.raises(ValueError, match="profile"):
        rl.set_printoptions(profile="nonsense")


def test_names_without_the_alias():
    rl._C._set_print_as_torch(False)
    assert repr(rl.ones(1, dtype=rl.float64)) == "tensor([1.], dtype=rushlight.float64)"


def test_printing_records_nothing_and_writes_nothing():
    x = rl.arange(2000.0, requires_grad=True)
    version = x._version
    repr(x)
    assert x._version == version and x.grad_fn is None and x.grad is None
