import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from isosent import (
    AllButTheTop,
    CommonComponentRemoval,
    L2Normalize,
    MeanCentering,
    MeanProjection,
    PrincipalComponents,
    Standardize,
    Truncate,
    Whitening,
    chain,
)
from isosent.transforms.erasure import Erasure

ESTIMATORS = [
    Whitening(),
    Whitening("auto"),
    PrincipalComponents(),
    PrincipalComponents(center=False),
    MeanCentering(),
    MeanProjection(),
    AllButTheTop(),
    CommonComponentRemoval(),
    Erasure(),
    Standardize(),
    Truncate(),
    L2Normalize(),
    chain(MeanCentering(), Whitening(strength=0.5)),
]


@pytest.mark.filterwarnings("ignore::isosent.errors.RankWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)
