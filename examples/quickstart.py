"""The tutorial's training loop, with one changed import: a module with one Linear layer, SGD, MSE, ten epochs.

    python examples/quickstart.py

教程里的训练循环，只改一行 import：一个线性层的模块、SGD、MSE，十个周期。
"""
import rushlight as torch
import rushlight.nn as nn
import rushlight.optim as optim


class SimpleModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(10, 2)

    def forward(self, x):
        return self.fc(x)


def main():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = SimpleModel().to(device)
    criterion = nn.MSELoss()
    optimizer = optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(5, 10).to(device)
    targets = torch.randn(5, 2).to(device)
    for epoch in range(10):
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        print(f"Epoch {epoch + 1}, Loss: {loss.item()}")


if __name__ == "__main__":
    main()
