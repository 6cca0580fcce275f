"""A script that knows nothing of rushlight. Run it with `rushlight run examples/torch_script.py`.

一个完全不知道 rushlight 的 PyTorch 脚本，用 `rushlight run examples/torch_script.py` 运行。
"""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(2, 16)
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        return self.out(F.relu(self.hidden(x)))


torch.manual_seed(1)
points = torch.rand(256, 2) * 2 - 1
inside = (points.pow(2).sum(1, keepdim=True) < 0.6).float()
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
for _ in range(20):
    for x, y in DataLoader(TensorDataset(points, inside), batch_size=64, shuffle=True):
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(net(x), y)
        loss.backward()
        optimizer.step()
right = ((net(points) > 0) == (inside > 0.5)).float().mean().item()
print(f"torch {torch.__version__}: {points.dtype}, {right:.0%} of the points are on the right side")
