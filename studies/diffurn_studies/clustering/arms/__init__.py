"""Arms of the study: ready-made options, one module each.

``vade_ae_mnist.npz`` is VaDE's released autoencoder, a file that the study does not download;
``--set pretrained=PATH`` names another place.
"""
