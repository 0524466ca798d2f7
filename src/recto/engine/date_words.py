"""The words that dates are written with, in English, German, French and Spanish, and a few of Chinese and Japanese."""

from __future__ import annotations

MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january jan januar jänner janvier enero",
            "february feb februar février febrero",
            "march mar märz mars marzo",
            "april apr avril abril",
            "may mai mayo",
            "june jun juni juin junio",
            "july jul juli juillet julio",
            "august aug août agosto",
            "september sept sep septembre septiembre",
            "october oct oktober okt octobre octubre",
            "november nov novembre noviembre",
            "december dec dezember dez décembre diciembre",
        ),
        1,
    )
    for name in names.split()
}
WEEKDAYS = {
    name: number
    for number, names in enumerate(
        (
            "monday montag lundi lunes",
            "tuesday dienstag mardi martes",
            "wednesday mittwoch mercredi miércoles",
            "thursday donnerstag jeudi jueves",
            "friday freitag vendredi viernes",
            "saturday samstag samedi sábado",
            "sunday sonntag dimanche domingo",
        )
    )
    for name in names.split()
}
NUMBERS = {
    name: number
    for number, names in enumerate(
        (
            "a an one ein eine einem einer un une una uno 一",
            "two couple zwei deux dos 两 二",
            "three drei trois tres 三",
            "four vier quatre cuatro 四",
            "five fünf cinq cinco 五",
            "six sechs seis 六",
            "seven sieben sept siete 七",
            "eight acht huit ocho 八",
            "nine neun neuf nueve 九",
            "ten zehn dix diez 十",
            "eleven elf onze once",
            "twelve zwölf douze doce",
        ),
        1,
    )
    for name in names.split()
}
UNITS = {
    name: unit
    for unit, names in {
        "day": "day days tag tage tagen jour jours día días dia dias 天 日",
        "week": "week weeks woche wochen semaine semaines semana semanas 周 週間",
        "month": "month months monat monate monaten mois mes meses 个月 ヶ月",
        "year": "year years jahr jahre jahren an ans année années año años 年",
    }.items()
    for name in names.split()
}
SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
"""The month in which each begins, in the north."""
