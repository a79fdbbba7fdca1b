"""The accuracy of answers on real data: data sets, methods, peers, metrics and tables."""
