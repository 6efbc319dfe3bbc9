"""Keras' data sets without downloads: `load_data` of mnist, fashion_mnist and cifar10."""
