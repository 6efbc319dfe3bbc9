"""Keras' data sets without downloads: `mnist`, `fashion_mnist`, `cifar10`, each with `load_data`."""
