"""What comes with the package: public words and vectors, and lists of words that people ask about first.

``tools/make_builtin_vocabulary.py`` writes words, vectors and their manifest. The lists are examples to measure with, and no
detector. Names are a selection from public statistics of the United States, in the public domain: Social Security
Administration, births of the last hundred years; Census Bureau, surnames of 2010.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from textpriv.errors import VocabularyError
from textpriv.vocabulary.vocabulary import Vocabulary

DATA = Path(__file__).parent / "data"
FILES = {
    "words": "{}-words.txt",
    "numbers": "{}-numbers.npy",
    "scales": "{}-scales.npy",
    "function words": "{}-function-words.txt",
}


def read_manifest(language: str) -> dict[str, Any]:
    """Return what is recorded of a vocabulary: its source, licence, checksums and computed records."""
    languages = sorted(path.stem for path in DATA.glob("*.json"))
    if language not in languages:
        raise VocabularyError(
            f"No vocabulary of the language {language!r} comes with the package, only of: {', '.join(languages)}. List "
            "public sets with: textpriv index --list. Then build an index: textpriv index NAME FOLDER"
        )
    return json.loads((DATA / f"{language}.json").read_text(encoding="ascii"))


def read_builtin(language: str) -> Vocabulary:
    """Return the vocabulary of a language, the commonest word first, vectors in float32."""
    manifest = read_manifest(language)
    for name, recorded in manifest["files"].items():
        if hashlib.sha256((DATA / name).read_bytes()).hexdigest() != recorded:
            raise VocabularyError(
                f"{DATA / name} is not the file that this version came with: install textpriv again."
            )
    paths = {kind: DATA / pattern.format(language) for kind, pattern in FILES.items()}
    numbers = np.load(paths["numbers"], allow_pickle=False)
    scales = np.load(paths["scales"], allow_pickle=False)
    words = paths["words"].read_text(encoding="ascii").split()
    return Vocabulary(words, numbers * scales[:, None], language=language)


# Words that people ask about

# Women's and men's names in turn, commonest first, so that any beginning of the list has both.
FIRST_NAMES = tuple(
    """
    john mary james patricia robert jennifer michael linda david elizabeth william barbara richard susan joseph jessica
    thomas karen christopher sarah charles lisa daniel nancy matthew sandra anthony betty mark ashley donald emily steven
    kimberly andrew margaret paul donna joshua michelle kenneth carol kevin amanda brian melissa timothy deborah ronald
    stephanie george rebecca jason sharon edward laura jeffrey cynthia ryan kathleen jacob amy nicholas angela gary shirley
    eric anna jonathan brenda stephen pamela larry emma justin nicole scott helen brandon samantha benjamin katherine samuel
    christine gregory debra frank rachel alexander carolyn raymond janet patrick catherine jack maria dennis heather lauren
    olivia
    """.split()
)

SURNAMES = tuple(
    """
    smith johnson williams brown jones garcia miller davis rodriguez martinez hernandez lopez gonzalez wilson anderson
    thomas taylor moore jackson martin lee perez thompson white harris sanchez clark ramirez lewis robinson walker young
    allen king wright scott torres nguyen hill flores green adams nelson baker hall rivera campbell mitchell carter roberts
    gomez phillips evans turner diaz parker cruz edwards collins reyes stewart morris morales murphy cook rogers gutierrez
    ortiz morgan cooper peterson bailey reed kelly howard ramos kim cox ward richardson watson brooks chavez wood james
    bennett gray mendoza ruiz hughes price alvarez castillo sanders patel myers long ross foster jimenez
    """.split()
)

ILLNESSES = tuple(
    """
    cancer diabetes asthma depression anxiety stroke pneumonia tuberculosis hepatitis malaria measles influenza flu hiv aids
    leukemia lymphoma melanoma tumor tumour epilepsy dementia alzheimer parkinson autism schizophrenia bipolar anorexia
    bulimia alcoholism addiction obesity hypertension angina anemia anaemia arthritis osteoporosis bronchitis emphysema
    fibrosis migraine meningitis encephalitis sclerosis psoriasis eczema herpes syphilis gonorrhea chlamydia cholera typhoid
    dengue ebola rabies tetanus polio mumps rubella smallpox sepsis cirrhosis jaundice pancreatitis appendicitis gastritis
    colitis ulcer hernia gout lupus thrombosis embolism aneurysm arrhythmia cardiomyopathy thyroid goitre glaucoma cataract
    blindness deafness infertility miscarriage endometriosis menopause incontinence insomnia psychosis suicide overdose
    paralysis concussion fracture infection fever allergy infarction covid
    """.split()
)

LISTS = {"first names": FIRST_NAMES, "surnames": SURNAMES, "illnesses": ILLNESSES}


def words_in(vocabulary: Vocabulary, words: tuple[str, ...]) -> list[str]:
    """Return those of some words that a vocabulary holds, as it writes them: in lower case, or else with a capital."""
    forms = ((word, word.capitalize()) for word in words)
    written = (next((form for form in both if form in vocabulary), None) for both in forms)
    return [word for word in written if word is not None]
