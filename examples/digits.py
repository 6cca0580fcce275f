"""Trains a small network on 1,797 real handwritten digits, with a scheduler, a progress bar, checkpoints and a resumable run.

    python examples/digits.py                      # trains, prints the test accuracy, saves digits.pt
    python examples/digits.py --resume digits.pt   # goes on where a run stopped, to the same bits as a run that did not stop
    python examples/digits.py --plot digits.png    # draws loss and accuracy (needs matplotlib)

在 1,797 个真实手写数字上训练一个小网络：学习率调度、进度条、检查点、可从中断处继续。--plot 画出损失和准确率（需要 matplotlib）。
"""
import argparse
import csv
import gzip
import pathlib
import sys
import time

import rushlight as torch
from rushlight import nn
from rushlight.utils.data import DataLoader, TensorDataset, random_split

DATA = pathlib.Path(__file__).parent / "data" / "digits.csv.gz"


def load_data(path=DATA):
    """(images float32 (N, 64) in 0..1, labels int64 (N,))"""
    with gzip.open(path, "rt") as file:
        rows = [[int(v) for v in row] for row in csv.reader(file)]
    table = torch.tensor(rows)
    return table[:, :64].float() / 16, table[:, 64].clone()


def split(images, labels):
    """Training and test data sets, the same for every run."""
    data = TensorDataset(images, labels)
    return random_split(data, [1437, 360], generator=torch.Generator().manual_seed(7))


def make_model():
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))


def accuracy(model, data):
    """Share of `data` that the model gets right."""
    model.eval()
    with torch.no_grad():
        right = sum((model(x).argmax(1) == y).sum().item() for x, y in DataLoader(data, batch_size=360))
    model.train()
    return right / len(data)


def progress(loader, epoch, epochs):
    """The loader with a bar when this is a terminal and tqdm is installed, else as it is."""
    if sys.stderr.isatty():
        try:
            from tqdm import tqdm
            return tqdm(loader, desc=f"epoch {epoch + 1}/{epochs}", unit="batch", leave=False)
        except ImportError:
            pass
    return loader


def train_epoch(model, loader, optimizer, criterion, epoch, epochs):
    """One pass over the data. Returns (mean loss, samples a second)."""
    total, count, start = 0.0, 0, time.perf_counter()
    bar = progress(loader, epoch, epochs)
    for x, y in bar:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(x)
        count += len(x)
        if hasattr(bar, "set_postfix"):
            bar.set_postfix(loss=f"{loss.item():.4f}", rate=f"{count / (time.perf_counter() - start):,.0f}/s")
    return total / count, count / (time.perf_counter() - start)


def plot(history, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, left = pyplot.subplots(figsize=(7, 4))
    left.plot([h["loss"] for h in history], "C0", label="training loss")
    left.set(xlabel="epoch", ylabel="loss", yscale="log")
    right = left.twinx()
    right.plot([h["accuracy"] for h in history], "C1", label="test accuracy")
    right.set_ylabel("accuracy")
    figure.legend(loc="center right")
    figure.savefig(path, dpi=120)
    print(f"wrote {path}")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--save", default="digits.pt", help="checkpoint, written after each epoch")
    parser.add_argument("--resume", help="checkpoint to go on from")
    parser.add_argument("--plot", help="picture of loss and accuracy")
    args = parser.parse_args(arguments)

    torch.manual_seed(0)
    train_set, test_set = split(*load_data())
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)
    criterion = nn.CrossEntropyLoss()
    loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    start, history = 0, []
    if args.resume:
        state = torch.load(args.resume)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        torch.set_rng_state(state["rng"])
        start, history = state["epoch"], state["history"]
        print(f"resumed after epoch {start}")
    for epoch in range(start, args.epochs):
        loss, rate = train_epoch(model, loader, optimizer, criterion, epoch, args.epochs)
        scheduler.step()
        history.append({"loss": loss, "accuracy": accuracy(model, test_set)})
        print(f"epoch {epoch + 1:2d}: loss {loss:.4f}, test accuracy {history[-1]['accuracy']:.2%}, {rate:,.0f} samples/s")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(),
                    "rng": torch.get_rng_state(), "epoch": epoch + 1, "history": history}, args.save)
    if args.plot:
        plot(history, args.plot)
    if history:
        print(f"test accuracy: {history[-1]['accuracy']:.2%}")
    return history


if __name__ == "__main__":
    main()
