import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from isosent import Whitening


@pytest.mark.filterwarnings("ignore::isosent.errors.RankWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([Whitening(), Whitening(1, strength=0.5)])
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)
