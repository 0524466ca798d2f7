"""The words of simulated sessions. Those of answers occur in answers only."""

from __future__ import annotations

from typing import Final


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FIRST_NAMES: Final = _words(
    "Ada Amir Anja Ayo Bela Bruno Carla Chidi Dana Dario Edda Emre Farah Finn Gita Goran Hana Hugo Ilse Imran Ivo "
    "Jana Joao Kaya Kenji Lara Leon Lina Luca Maia Marek Mei Mila Nadia Niko Noor Olga Omar Pavel Petra Priya Quinn "
    "Rafa Rana Rita Ruben Sami Sena Silas Sofia Tarek Tessa Timo Tuva Ugo Uma Vera Viktor Wanda Willem Xenia Yara "
    "Yusuf Zora"
)
SURNAMES: Final = _words(
    "Abara Albers Amado Arslan Baro Becker Bianchi Blom Castro Cermak Dahl Deniz Duarte Ekberg Engel Falk Ferri "
    "Fodor Galli Gruber Haas Halim Horak Ibarra Ivanov Jansen Jensen Kato Keller Kovac Lang Lemos Lund Madsen Marin "
    "Meyer Mora Nagy Neri Novak Okoye Olsen Pace Perez Pohl Quist Ramos Reyes Riva Rossi Sato Silva Simon Stein "
    "Tanaka Toth Urban Vidal Vogel Weber Wolff Yilmaz Zeman Zhou"
)
HUES: Final = _words(
    "amber ashen azure beige black blue bronze brown burnt cherry chrome clay coal copper coral cream crimson cyan "
    "dark dusty ebony fawn flint frost golden granite green grey hazel honey indigo iron ivory jade khaki lemon "
    "light lilac lime maroon mint misty navy ochre olive onyx opal pale pearl pink plum purple red rose rusty sable "
    "sandy silver slate snowy steel tan teal white"
)
PLACES: Final = _words(
    "abbey alley bay beach bend bridge brook canal cape castle cliff coast corner court cove creek crest dale delta "
    "dock dune falls farm field fjord ford forest gate glen grove gulf harbour heath hill island isle junction lake "
    "lane ledge marsh meadow mill moor mound orchard park pass peak pier plain pond port quarry reef ridge river "
    "shore spring summit tower valley village wharf"
)
PARTS: Final = _words(
    "account alert archive audit backup balance batch billing booking broker buffer cache catalog checkout claim "
    "cluster consent coupon courier customer dispatch document export feed filing gateway geocode import index "
    "ingest inventory invoice ledger license login lookup mailer matching metering notice order payment payout "
    "planner pricing profile queue quota refund registry report retry routing scheduler search session settlement "
    "shipping signup stock tariff tenant ticket voucher"
)
MATTERS: Final = _words(
    "adoption alloys aquifers batteries bees biomass carbon cement cooling corals corn cotton crops currents "
    "drought dyes emissions erosion fibres fisheries floods forests fungi glaciers grids harvests heating hydrogen "
    "insulation irrigation kelp lakes lithium magnets membranes mines monsoons mussels nickel nitrogen oceans ores "
    "ozone peat permafrost pipelines plankton plastics pollen pumps recycling reefs reservoirs rice rivers salmon "
    "sensors silicon soils solar steel storms tides turbines"
)
ANSWER_FIRST: Final = _words(
    "angular antique bashful bitter blended braided brisk candied carved cautious charred chilled clever crooked "
    "crumbled crunchy curious dainty drowsy eager earnest faded feathered fluffy folded fragrant frosted gentle "
    "gilded glazed hearty hollow humble jagged jolly knitted lacquered layered leafy lively mellow mended minted "
    "nimble painted pickled plaited polished puffed quiet roasted salted scented shy smoked spiced steamed striped "
    "sturdy toasted twisted velvet whistling woven"
)
ANSWER_SECOND: Final = _words(
    "acorn almond anise apricot barley basil beetroot bramble caraway cardamom carob cashew celery chestnut chicory "
    "cinnamon clove coconut coriander cumin currant dandelion date elder endive fennel fig garlic ginger hazelnut "
    "hibiscus juniper kumquat laurel leek lentil licorice lychee mango marjoram medlar millet mulberry mustard "
    "nettle nutmeg okra oregano papaya parsnip pecan persimmon pistachio quince radish raisin rhubarb saffron sage "
    "sesame sorrel tamarind turmeric walnut"
)
ANSWER_THIRD: Final = _words(
    "accordion anvil apron armchair balloon banjo barrel basket bellows blanket bonnet bracelet bucket candle "
    "canister canoe cello chisel clarinet compass cradle curtain cushion drum easel fiddle flask flute goblet "
    "hammock harp jigsaw kettle kite ladder lantern loom lute mandolin mitten mortar napkin oboe paddle parasol "
    "pendant pillow pitcher puppet quilt rattle ribbon rocket saddle satchel scarf sleigh spindle stool tambourine "
    "teapot thimble trumpet umbrella"
)
VERBS: Final = _words(
    "adds asks breaks builds calls changes checks clears closes counts drops ends fails fills finds follows gives "
    "grows holds joins keeps leads leaves lifts links looks makes marks meets moves needs opens passes pays picks "
    "pulls pushes puts reads rests returns runs saves seems sends sets shifts shows slows sorts splits stays stops "
    "takes tells tests tries turns uses waits works writes"
)
THINGS: Final = _words(
    "afternoon answer area argument aspect attempt balance basis branch budget case cause change chapter choice "
    "circle comment concern copy day deadline detail draft effect effort end evening example experience figure form "
    "group habit half idea issue item kind letter level line list map matter meeting method minute model moment "
    "month morning need number office option order page part path pattern period person phase picture piece plan"
)
JOINTS: Final = (
    "because",
    "although",
    "while",
    "so that",
    "whenever",
    "before",
    "unless",
    "as long as",
)
