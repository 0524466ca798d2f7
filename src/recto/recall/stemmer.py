"""The languages of a text, and a lexicon for every script that reduces words to their stems.

Every word has the term of its English stem, by the Porter stemmer of SQLite's FTS5, or of the word itself if it is not
ASCII. A text in another language with a stemmer has the term of that stem beside it, and its function words are
dropped. The English term stays, so that names and technical terms are found across languages, and so that a text whose
language was not recognized finds no less than before.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain, islice
from typing import TYPE_CHECKING
from zlib import crc32

import apsw

from recto.text.lazy_re import lazy_re
from recto.text.terms import chunk_counts, chunks_of, words_of

if TYPE_CHECKING:
    import Stemmer
import unicodedata
from collections.abc import Mapping
from itertools import pairwise, product
from typing import Final

ENGLISH: Final = "english"
RUSSIAN: Final = "russian"
CHINESE: Final = "chinese"
JAPANESE: Final = "japanese"
BY_SCRIPT: Final = (RUSSIAN, CHINESE, JAPANESE)
"""Languages whose function words occur in no other one."""
_LEAST_SHARE: Final = 0.08
"""Share of a longer text that its function words make up at least. Prose has more than 30 %, logs and code far less."""
_SAMPLE: Final = 64
"""Distinct words at the beginning of a text that are looked at."""
_SHORT: Final = 12
"""Words up to which a single function word decides, as in a question."""
_LEAST_LETTERS: Final = 3
"""Letters that a single function word needs to decide: shorter ones are abbreviations and parts of names as well."""
_MOST_LANGUAGES: Final = 3
"""A text that could be in more languages than this is in none."""

_LISTS: Final = {
    ENGLISH: """
    a an the this that these those i me my you your yours he him his she her hers it its we our they them their who
    whom what which where when why how many much am is are was were be been being do does did doing done have has had
    having will would can could should shall may might must and or nor but if so than then as at by for from in into of
    off on onto to up down out over under with about above after again before because below between both during each
    few further more most now once only other own same through until while there here just also very too not no any all
    some such s t d ll m re ve don didn doesn isn wasn
    """,
    "german": """
    der die das den dem des ein eine einen einem einer eines und oder aber nicht kein keine keinen keiner ist sind war
    waren wird werden wurde wurden hat haben habe hatte hatten kann können konnte soll sollen sollte muss müssen musste
    darf bin bist sei wäre würde ich du er sie es wir ihr mich mir mein meine meinen meiner dich dir dein deine uns
    unser unsere unseren sein seine seinen seiner ihn ihm ihnen ihre ihren ihrer auf aus bei beim mit nach von vom zu
    zum zur für über unter durch gegen ohne um an am im in ins als auch wie was wer wen wem wo wann warum wieso wohin
    welche welcher welches welchen welchem wenn ob dass daß weil denn noch nur schon sehr so dann da hier dort doch bis
    seit vor zwischen ja nein man sich bitte viele viel mehr etwas alle alles diese dieser dieses diesen diesem jede
    jeder jedes jeden
    """,
    "french": """
    le la les l un une des du de d au aux et ou mais ne pas non plus est sont était étaient sera seront été être suis
    es sommes êtes a ont avait avaient avons avez ai as aura avoir fait faire peut peuvent doit doivent faut je j tu il
    elle on nous vous ils elles me m te t se s lui leur leurs mon ma mes ton ta tes son sa ses notre nos votre vos ce
    cet cette ces c cela ça qui que qu quoi dont où quand comment pourquoi combien quel quelle quels quelles à dans par
    pour sur sous avec sans chez vers entre depuis pendant avant après si comme aussi très bien tout toute tous toutes
    même encore déjà donc car y en
    """,
    "spanish": """
    el la los las lo un una unos unas de del al y e o u pero no ni sí si es son era eran fue fueron será ser sido está
    están estaba estaban estar ha han había hay he hemos haber tiene tienen tenía puede pueden debe deben hace yo tú él
    ella nosotros ellos ellas me te se nos le les mi mis tu tus su sus nuestro nuestra este esta esto estos estas ese
    esa eso esos esas que qué quien quién quiénes cual cuál cuáles cuando cuándo como cómo donde dónde cuanto cuánto
    cuántos cuántas por para con sin sobre entre desde hasta en a durante porque más menos muy ya también tan todo toda
    todos todas cada otro otra aquí ahora entonces
    """,
    "italian": """
    il lo la i gli le l un uno una dei degli delle del della dello dell di da dal dalla dai dalle al allo alla ai agli
    alle all nel nella nello nei nelle sul sulla sui sulle e ed o ma non né è sono era erano sarà essere stato stata
    stati state ho hai ha abbiamo avete hanno aveva avere fa può possono deve devono io tu lui lei noi voi loro mi ti
    si ci vi ne mio mia miei mie tuo tua suo sua suoi sue nostro nostra questo questa questi queste quello quella
    quelli che chi cosa quale quali quando come dove perché perchè quanto quanti quanta quante per con senza su tra fra
    in a se più meno molto anche già ancora tutto tutta tutti tutte ogni dopo prima durante poi così
    """,
    "portuguese": """
    o a os as um uma uns umas de do da dos das no na nos nas ao à aos às pelo pela pelos pelas num numa e ou mas não
    nem sim se é são era eram foi foram será ser sido está estão estava estavam estar há tem têm tinha ter pode podem
    deve devem faz eu tu ele ela nós eles elas você vocês me te lhe lhes meu minha meus minhas teu tua seu sua seus
    suas nosso nossa este esta isto estes estas esse essa isso aquele aquela que quê quem qual quais quando como onde
    porque porquê quanto quantos quanta quantas por para com sem sobre entre desde até em durante mais menos muito já
    também todo toda todos todas cada outro outra aqui agora então depois
    """,
    "dutch": """
    de het een en of maar niet geen is zijn was waren wordt worden werd werden heeft hebben had hadden kan kunnen kon
    zal zullen zou moet moeten mag ik jij je u hij zij ze wij we jullie mij me jou hem haar ons onze mijn jouw uw hun
    dit dat deze die er hier daar wie wat welke welk waar wanneer waarom hoe hoeveel op in uit bij met naar van voor
    over onder door tegen zonder om aan als ook nog al wel zo dan tot sinds tussen te ten ter veel meer alle alles zich
    toch omdat
    """,
    "swedish": """
    den det de en ett och eller men inte ej är var varit vara blir blev har hade ha kan kunde ska skulle måste får fick
    jag du han hon vi ni dem mig dig sig oss er min mitt mina din ditt dina sin sitt sina vår vårt våra deras denna
    detta dessa som vad vem vilken vilket vilka när varför hur många mycket på i av med till från för om under över
    mellan utan efter före innan vid mot genom att så då här där också bara redan än mer alla allt man ut upp
    """,
    "danish": """
    den det de en et og eller men ikke er var været være bliver blev har havde have kan kunne skal skulle vil ville må
    får fik jeg du han hun vi i dem mig dig sig os min mit mine din dit dine sin sit sine vores deres denne dette disse
    som hvad hvem hvilken hvilket hvilke hvornår hvorfor hvor hvordan mange meget på af med til fra for om under over
    mellem uden efter før ved mod gennem at så da her der også kun allerede end mere alle alt man ud op
    """,
    "norwegian": """
    den det de en ei et og eller men ikke er var vært være blir ble har hadde ha kan kunne skal skulle vil ville må får
    fikk jeg du han hun vi dere dem meg deg seg oss min mitt mine din ditt dine sin sitt sine vår vårt våre deres denne
    dette disse som hva hvem hvilken hvilket hvilke når hvorfor hvor hvordan mange mye på i av med til fra for om under
    over mellom uten etter før ved mot gjennom at å så da her der også bare allerede enn mer alle alt man ut opp
    """,
    "finnish": """
    ja tai mutta ei eivät en et emme ole on ovat oli olivat ollut olla olen olet olemme voi voivat pitää täytyy minä
    sinä hän me te he se ne minun sinun hänen meidän teidän heidän sen niiden minulla meillä tämä tuo nämä nuo tässä
    siinä mikä mitkä mitä missä mistä mihin milloin miksi miten kuinka kuka ketkä kenen jos kun että koska vaan vain
    myös jo vielä niin kuin sekä kanssa ilman ennen jälkeen aikana mukaan paljon monta kaikki enemmän hyvin nyt sitten
    siis
    """,
    RUSSIAN: """
    и а но или не ни да нет же ли бы что чтобы как так то это этот эта эти этого этой этих тот та те того той тех я ты
    он она оно мы вы они меня тебя его её ее нас вас их мне тебе ему ей нам вам им мной мой моя моё мои твой наш наша
    наши ваш свой кто кого кому чем где когда куда откуда почему зачем сколько какой какая какое какие каких каким чей
    был была было были будет будут есть быть в во на с со к ко по из за от до для о об обо при под над без у через
    между после перед если потому уже ещё еще только очень тоже также можно нужно надо все всё всех весь вся там тут
    здесь
    """,
}

_CHINESE: Final = "的了是在和吗呢吧着个把被也都就这那哪什么谁怎多少与及或里些为时候"
_JAPANESE: Final = """
    ですか でした でしょう ますか ました ません ましょう ている ていた ていました ておく されています
    れる られる せる させる になった になりました にする について によって として とは とか という
    ということ ことが ものを から からの まで までの より などの だけ しか ほど くらい ぐらい ごとに
    ための ために ように ような そうだ どの どのくらい どのように どこに どこで どう どうして どんな
    どれ なぜ いつ いくら いくつ だれが なにを これは それは あれは ここ そこ この その あの には
    では でも ても のは のが のを のに ので んだ けれど けれども しかし そして また ください たい
    ない なかった なければ ありますか ありました ある いる した して する だった ことを ものが
    """

_LETTERS: Final = str.maketrans({"ß": "ss", "ø": "o", "æ": "ae", "œ": "oe"})


def _without_accents(word: str) -> str:
    """A word as `words_of` returns it, and as it is typed on a keyboard without accents."""
    if word.isascii():
        return word
    marked = unicodedata.normalize("NFD", word.translate(_LETTERS))
    return "".join(character for character in marked if not unicodedata.combining(character))


FUNCTION_WORDS: Final[Mapping[str, frozenset[str]]] = {
    **{
        name: frozenset(form for word in words.split() for form in (word, _without_accents(word)))
        for name, words in _LISTS.items()
    },
    CHINESE: frozenset([*_CHINESE, *map("".join, product(_CHINESE, repeat=2))]),
    JAPANESE: frozenset(first + second for phrase in _JAPANESE.split() for first, second in pairwise(phrase)),
}
"""By language, in lower case, with their accents and without. They say nothing about the subject of a text.

Chinese and Japanese have pairs of characters, as `words_of` returns them: two particles next to each other, and parts
of endings. A pair with a character of any other word is kept.

`not` and `no` are among them: a text that denies something has the same subject as one that affirms it, and a query
should find both. `never`, `without` and `nothing` are rare enough to distinguish texts and are left out.
"""


_AMBIGUOUS: Final = frozenset(
    """
    all alt bare bin car com come con dan del den die dine din dit door dos dove due end era est for had has hat hay
    hem her kan las los mag man men met mia min mine mis mit mod mot non nos num ole over per plus pour prima sans
    ser sim sin sit son state stati stato sue ten ter todo ton under van var war
    """.split()  # noqa: SIM905  read as prose
)
"""Function words that are also English words, names or words of code: alone they do not show a language."""
_FOUND_BY_WORDS: Final = tuple(name for name in FUNCTION_WORDS if name not in (ENGLISH, *BY_SCRIPT))


def _as_written(names: Iterable[str]) -> frozenset[str]:
    words = frozenset[str]().union(*(FUNCTION_WORDS[name] for name in names))
    return words.union(map(str.capitalize, words))


_ENGLISH_WORDS: Final = _as_written([ENGLISH])
_OTHER_WORDS: Final = _as_written(_FOUND_BY_WORDS)
_EVIDENCE: Final = _OTHER_WORDS - _ENGLISH_WORDS - _AMBIGUOUS.union(map(str.capitalize, _AMBIGUOUS))


def languages_of(counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return the languages that a text may be in, from its words and their frequencies as `chunk_counts` returns them.

    Nothing for English and for a text that does not show its language; several where they have equally many words.
    """
    sample = list(islice(counts, _SAMPLE))
    if _EVIDENCE.isdisjoint(sample):
        return ()
    others, english = _OTHER_WORDS.intersection(sample), len(_ENGLISH_WORDS.intersection(sample))
    if len(others) <= english:
        return ()  # no other language can have more words
    words = [(word, word.lower()) for word in others]
    said = {name: [word for word, plain in words if plain in FUNCTION_WORDS[name]] for name in _FOUND_BY_WORDS}
    most = max(map(len, said.values()))
    best = tuple(name for name, found in said.items() if len(found) == most)
    if most <= english or len(best) > _MOST_LANGUAGES:
        return ()
    [first, *more] = said[best[0]]
    if not more and first.isascii() and len(first) < _LEAST_LETTERS:
        return ()
    length, known = sum(counts.values()), sum(counts[word] for word in (first, *more))
    return best if length <= _SHORT or (more and known >= _LEAST_SHARE * length) else ()


MAX_CACHED_WORDS = 200_000
"""Words whose terms are cached, and chunks of text. When there are more, the cache starts empty again."""
_MAX_CACHED_CHARS = 200
"""Longer chunks are not cached."""

STOP_WORDS = FUNCTION_WORDS[ENGLISH]
"""Words that occur in nearly every English message and say nothing about its subject."""
_PROSE = lazy_re(r"[^\W\d_]+(?:['-][^\W\d_]+)*")
"""A plain word of a sentence, not a path or a name with digits or underscores."""
_JOINTS = lazy_re("['-]")
_PUNCTUATION = "_.\\@:/',+#-"
"""What may remain at the ends of a chunk."""
_CYRILLIC = lazy_re("[\u0400-\u04ff]")
_IDEOGRAPH = lazy_re("[\u3400-\u9fff]")
_FIRST_UNSPACED = "\u0e00"


class PorterLexicon:
    """Terms of words in any script: by their English stem, and in other languages by the stem of that language too."""

    name = "porter/2"

    def __init__(self) -> None:
        self._connection = apsw.Connection(":memory:")
        self._stem = self._connection.fts5_tokenizer("porter", ["ascii"])
        self._known: dict[str, int] = {}
        self._chunks: dict[tuple[str, ...], dict[str, tuple[int, ...]]] = {(): {}}
        """By the languages of the text: terms of its chunks, as `chunk_counts` splits them, without stop words."""
        # A tokenizer belongs to one connection and must not run in two threads at once; neither must a stemmer.
        self._lock = threading.Lock()
        self._stemmers: dict[str, Stemmer.Stemmer] = {}

    def terms(self, text: str) -> dict[int, int]:
        """Count each term by the CRC-32 of its stem.

        Stop words are dropped unless the text has no other words: a question such as `who am I` must be able to find
        the message that answers it.
        """
        counts = chunk_counts(text)
        languages = languages_of(counts)
        known = self._chunks.get(languages, {})
        try:
            found = list(map(known.__getitem__, counts))
        except KeyError:
            learned = self._learn_chunks([chunk for chunk in counts if chunk not in known], languages)
            found = [learned[chunk] if chunk in learned else known[chunk] for chunk in counts]
        term_counts: dict[int, int] = {}
        count_of = term_counts.get
        for terms, count in zip(found, counts.values(), strict=True):
            for term in terms:
                term_counts[term] = count_of(term, 0) + count
        return term_counts or dict(Counter(self._terms_of(words_of(text))))

    def distinct(self, texts: Sequence[str]) -> list[frozenset[int]]:
        """Return the terms of each of some texts. Words that are new in them are stemmed at once."""
        chunked = [dict.fromkeys(chunks_of(text)) for text in texts]
        known, chunks = self._chunks.get((), {}), set[str]().union(*chunked)
        unknown = [chunk for chunk in chunks if chunk not in known]
        learned = self._learn_chunks(unknown, ()) if unknown else {}
        terms = {chunk: learned[chunk] if chunk in learned else known[chunk] for chunk in chunks}
        return [
            # A text in another language has more terms, and one of stop words alone has those.
            (_EVIDENCE.isdisjoint(islice(own, _SAMPLE)) and frozenset(chain.from_iterable(map(terms.__getitem__, own))))
            or frozenset(self.terms(text))
            for text, own in zip(texts, chunked, strict=True)
        ]

    def sequence(self, text: str) -> list[int]:
        """Return the terms of English stems in text order, without English stop words."""
        return self._terms_of([word for word in words_of(text) if word not in STOP_WORDS])

    def _terms_of(self, words: list[str]) -> list[int]:
        known = self._known
        if any(word not in known for word in words):
            known = self._learn(dict.fromkeys(words))
        return [known[word] for word in words]

    def _learn_chunks(self, chunks: list[str], languages: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
        """Return the terms of chunks, and add them to the cache."""
        dropped = _dropped(languages)
        words = [[word for word in words_of(chunk) if word not in dropped] for chunk in chunks]
        terms = iter(self._terms_of([word for of_chunk in words for word in of_chunk]))
        learned = {chunk: tuple(islice(terms, len(of_chunk))) for chunk, of_chunk in zip(chunks, words, strict=True)}
        with self._lock:
            for chunk, found in learned.items():
                if languages or not chunk.isascii():
                    more = dict.fromkeys(self._foreign_terms(chunk, languages))
                    learned[chunk] = (*found, *(term for term in more if term not in found))
            if sum(map(len, self._chunks.values())) + len(learned) > MAX_CACHED_WORDS:
                # Other threads may be reading the old dictionaries without a lock, so they are replaced, not cleared.
                self._chunks = {}
            short = {chunk: found for chunk, found in learned.items() if len(chunk) <= _MAX_CACHED_CHARS}
            self._chunks.setdefault(languages, {}).update(short)
        return learned

    def _foreign_terms(self, chunk: str, languages: tuple[str, ...]) -> list[int]:
        """Return the terms of the words in a chunk by their stems in other languages; none of a name or a path.

        Of a run of characters without spaces, which has the terms of its pairs already, those that are words alone.
        """
        if chunk >= _FIRST_UNSPACED:
            return [_term(character) for character in _IDEOGRAPH.findall(chunk) if character not in _dropped(())]
        prose = chunk.strip(_PUNCTUATION)
        if not _PROSE.fullmatch(prose):
            return []
        spoken = (RUSSIAN,) if _CYRILLIC.match(prose) else languages
        words = [word.lower() for word in _JOINTS.split(prose) if word[1:].islower()]
        return [
            _term(part)
            for language in spoken
            for word in words
            if word not in FUNCTION_WORDS[language]
            # Accents are removed after stemming: the rules of a language are written with them.
            for part in words_of(self._stemmer(language).stemWord(word))
        ]

    def _stemmer(self, language: str) -> Stemmer.Stemmer:
        import Stemmer  # noqa: PLC0415  # start-up: not for English

        if language not in self._stemmers:
            self._stemmers[language] = Stemmer.Stemmer(language)
            self._stemmers[language].maxCacheSize = 0  # terms are cached here
        return self._stemmers[language]

    def _learn(self, words: Iterable[str]) -> dict[str, int]:
        """Add words to the cache and return it."""
        with self._lock:
            known = self._known
            fresh = [word for word in words if word not in known]
            if len(known) + len(fresh) > MAX_CACHED_WORDS:
                # Other threads may be reading the old dictionary without a lock, so it is replaced and not cleared.
                known, fresh = {}, list(words)
            stemmed = [word for word in fresh if word.isascii() and word.isalpha()]
            known.update((word, _term(word)) for word in fresh)
            known.update((word, _term(stem)) for word, stem in zip(stemmed, self._stems(stemmed), strict=True))
            self._known = known
            return known

    def _stems(self, words: list[str]) -> list[str]:
        text = " ".join(words).encode()
        stems = self._stem(text, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False)
        return [str(stem) for stem in stems]


@cache
def _dropped(languages: tuple[str, ...]) -> frozenset[str]:
    """Return the words that a text in these languages is not searched by."""
    return STOP_WORDS.union(*(FUNCTION_WORDS[language] for language in (*languages, *BY_SCRIPT)))


@cache
def shared_lexicon() -> PorterLexicon:
    """Return the lexicon of this process: it remembers the words of all sessions."""
    return PorterLexicon()


def _term(word: str) -> int:
    return crc32(word.encode("utf-8", "surrogatepass"))
