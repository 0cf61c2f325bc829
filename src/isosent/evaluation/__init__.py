"""Measuring sentence vectors against human judgement."""
