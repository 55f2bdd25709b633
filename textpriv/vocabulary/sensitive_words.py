"""Public lists of words that people ask about first: common first names, surnames and illnesses in English.

They are examples to measure with, and no detector. Names are a selection from public statistics of the United States
(Social Security Administration, births of the last hundred years; Census Bureau, surnames of 2010), which are in the public
domain. Illnesses are everyday English words.
"""

from __future__ import annotations

from textpriv.vocabulary.vocabulary import Vocabulary

__all__ = ["FIRST_NAMES", "ILLNESSES", "LISTS", "SURNAMES", "words_in"]

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
