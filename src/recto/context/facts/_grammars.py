"""Grammar cues of user statements, language by language.

A sentence is kept as a standing statement unless it is shown to be none (`recto.context.facts.statements`), so a
grammar describes both: the forms that forbid, allow, require, prefer, correct, decide and defer, and the forms that are
over once they are said: requests that are done at once, reports of what happened, reactions and small talk. Cues are
grammatical (modals, negation, mood, quantifiers, conditions) rather than topical. Texts are passed in lower case with
straight apostrophes. Languages without a grammar rely on the phrases of `recto.context.facts.patterns`.

Notation: one cue per line, a regular expression in which `<a b_c>` lists alternatives, `_` is a space, `~` the rest of
a word and `…` a few words or none; a cue goes on in the next line after `&`. Cues match whole words. A new language is
one entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from msgspec import Struct

from recto.text.lazy_re import lazy_re


class Grammar(Struct, frozen=True, kw_only=True):
    """The cues of one language, in the order in which they are tried."""

    opener: re.Pattern[str]
    """Words before the sentence proper that do not change what it is: `ok,`, `and`, `please`."""
    question: re.Pattern[str]
    """How a question without a question mark begins."""
    reaction: re.Pattern[str]
    """How thanks, greetings and reactions begin."""
    correct: re.Pattern[str]
    defer: re.Pattern[str]
    """Left open, put off, or to be asked about first."""
    forbid: re.Pattern[str]
    allow: re.Pattern[str]
    decide: re.Pattern[str]
    prefer: re.Pattern[str]
    require: re.Pattern[str]
    """Obligation that no report of the past uses: `must`, `from now on`, `make sure`."""
    report: re.Pattern[str]
    """Past tense, and times in the past."""
    lasting: re.Pattern[str]
    """What makes a request last: quantifiers, conditions, negation, limits."""
    once: re.Pattern[str]
    """How a request begins that is done as soon as it is carried out."""
    remark: re.Pattern[str]
    """Remarks in the present tense: opinions, states that pass, small talk."""


@cache
def grammar(language: str) -> Grammar | None:
    """The grammar of a language, compiled when it is first needed; None if it has none."""
    cues = _GRAMMARS.get(language)
    if cues is None:
        return None
    unbounded = set(Grammar.__struct_fields__) if language == "zh" else {"opener"}
    return Grammar(**{name: _compile(cue, bounded=name not in unbounded) for name, cue in cues.items()})


_LIST = re.compile(r"<([^<>]+)>")
_LOOKBEHIND = "(?<"
_MAX_NESTING = 4
"""Lists within lists."""


def _compile(cues: str, *, bounded: bool) -> re.Pattern[str]:
    joined = "|".join(_cue_lines(cues)).replace(_LOOKBEHIND, "\1")
    for _ in range(_MAX_NESTING):  # the innermost lists first
        joined = _LIST.sub(lambda match: f"(?:{'|'.join(match[1].split())})", joined)
    joined = joined.replace(" … ", " (?:[^.?!]{0,80}? )?").replace("…", "[^.?!]{0,60}?").replace("~", r"\w*")
    joined = joined.replace("_", " ").replace("\1", _LOOKBEHIND)
    return lazy_re(rf"(?<!\w)(?:{joined})(?!\w)" if bounded else joined)


def _cue_lines(cues: str) -> Iterator[str]:
    """The cues; one that does not end on its line, with an open list or with `&`, goes on in the next."""
    cue = ""
    for line in cues.splitlines():
        part = line.strip()
        cue = f"{cue[:-1]}{part}" if cue.endswith("&") else f"{cue} {part}".strip()
        lists = cue.replace(_LOOKBEHIND, "")
        if cue and not cue.endswith("&") and lists.count("<") == lists.count(">"):
            yield cue
            cue = ""


_EN_PAST = """
    was were wasn't weren't had hadn't did didn't took went (?<!'ve_)got made said came saw found gave broke ran
    wrote told knew thought left kept began spent felt heard held met paid sent sat slept stood lost built bought
    brought caught fell flew forgot grew hung led rose spoke threw understood woke won wore drove ate drank couldn't
    shut
"""
_EN_ONCE = """
    run re-?run execute show list open print check double-check look find explain tell give read re-?read fix commit
    push pull rename move delete remove add create write make search compare summari[sz]e try retry restart start
    stop rebase merge update upgrade continue go refactor implement revert undo redo describe draft translate
    generate count see have do build rebuild test deploy install uninstall download upload fetch grep copy paste
    send plot draw render convert extract parse sort investigate debug review analy[sz]e inspect examine figure
    think help get set change replace clean tidy simplify optimi[sz]e rewrite reword shorten expand finish complete
    proceed resume repeat close reopen comment respond take save load reload refresh bump apply cherry-pick squash
    stash check_?out clone branch tag publish post visit browse google calculate compute estimate measure profile
    benchmark validate verify confirm turn switch connect book order schedule plan design sketch outline brainstorm
    propose suggest recommend guess invoke dig trace reproduce highlight clarify elaborate let imagine enjoy hang
    address put bring split group gimme grab hand pass fire spin jump wire kill trigger ping pick swap drop strip
    format log document prepare play define edit modify inform enable disable mark strengthen attach assign backport
    bisect configure import introduce lint patch port prune register reinstall remind reset resolve restore rework
    scan submit subscribe sync tackle tail train trim tune unify unwrap view watch walk wait resubmit reapply extend
    rearrange reorganize restructure simulate sanity-check smoke-test lower raise reduce increase
"""
_EN_TEMPER = "so very really quite pretty a_bit a_little still not just rather getting going indeed super kind_of"

_GRAMMARS: dict[str, dict[str, str]] = {
    "en": {
        "opener": r"""
            \W{0,6}(?:<ok okay yes yeah yep sure well and so but also oh ah hm+ btw by_the_way alright right fine
            please just now then next first second finally again actually one_more_thing one_last_thing fyi note
            hey hi kindly that_said for_the_record remember quick_note heads_up in_addition
            besides>[\s,.:;!–—-]{1,4}|<great good nice cool perfect thanks thank_you sorry>[,.:;!–—-]\s{1,3}){0,5}""",
        "question": """
            <which why how(?!_<about ever>)>_\\w+
            <question q>_?[:,]
            <what who whom whose which where why how><'s 're _is _are _was _do _does _did _can _could _would _will
            _should _about _come _many _much _long _of>
            <is are was were do does did can could would will should have has> <i you we he she it they there this
            that these those the my our your any>""",
        "reaction": """
            <thanks thank_you thx ty cheers hi hello hey bye see_you wow whoa nice great perfect awesome cool
            excellent>
            <brilliant wonderful amazing interesting funny haha~ lol hm+ huh oops ouch ugh yay well_done
            makes_sense got_it>
            <understood i_see i_understand no_worries no_problem never_?mind fair_enough good_to_know my_bad
            same_here>
            <exactly indeed welcome_back you're_welcome(?!_to) so_far_so_good what_an? enjoy congrat~ sure_thing
            not_bad oh_no oh_wow oh_well strange>
            <weird ah aha good sorry apologies no_idea no_clue dunno i_don't_know can't_wait not_sure>
            good_<morning evening afternoon night job work point idea catch question stuff one>
            <sounds looks>_<good great fine reasonable nice right>
            <it's it_is this_is that_is>_<all_ totally_ absolutely_>?<fine ok okay>[.,;!]
            <this_is that_is>_<all_ totally_>?<fine ok okay>$
            have_a_<nice good great lovely>
            that<'s _is _was _looks _sounds _helps _makes _explains _did _worked _works _helped>
            this_<looks is was>_<really_ so_ very_ pretty_ quite_>?<great good nice awesome cool perfect amazing
            wonderful helpful interesting better weird strange odd annoying fun funny>""",
        "correct": """
            <i we> <actually_>?<meant misspoke misremembered mistyped mixed_it mixed_them mixed_up confused>(?! to)
            <i we> <got said wrote told_you typed> … <wrong but>
            you_<misread misunderstood got_me_wrong got_it_wrong got_that_wrong mixed confused>
            what_i_<actually_ really_>?<want meant need asked>
            <my_mistake i_was_wrong correction i_stand_corrected>
            <is are>_<called named spelled spelt>
            <and but , >_?not_(?!<yet sure only just even all>\\b)\\w+
            \\w+,_not_(?!<yet sure only just even all>\\b)\\w+
            not_(?!<sure only entirely certain>)[^,.;]{1,40},_but
            <isn't aren't not>_[^.;]{1,60}[,;]_?<it they that><'s _is 're _are>
            changed[,:;]
            <is are lives? uses? runs? goes? starts? sits? happens?>_[^.;]{0,40}\\bnow[.!]?$
            now_<lives? called named runs in at on starts uses>
            <is are was were 's 're aren't isn't be>_(?:\\w+_){0,2}<wrong incorrect outdated out_of_date misleading>
            ^<wrong incorrect outdated>
            you(?:'ve|'re)?_(?:\\w+_){1,3}wrong
            no_longer_<true valid correct applies apply needed required necessary>
            <forget ignore disregard scratch scrap strike lift>_<what that the_rule the_instruction the_restriction
            the_limit the_ban the_freeze my everything all about>
            i_take_<it that>_back
            ^<no nah nope>,_(?!<thanks thank worries problem that's idea need>\\b)\\w+
            ^no_<the it that i we not use make don't only keep>
            ^<not nope>,?_<the that like>
            should_have_been""",
        "defer": """
            <for_now for_the_moment for_the_time_being for_later not_yet not_now another_time another_day
            undecided>
            <hold_off on_hold park parked shelve shelved postpone postponed defer deferred come_back_to
            get_back_to>
            <circle_back revisit later_on some_other_time unsettled unresolved up_in_the_air tbd open_question
            pending>
            <to_be_decided to_be_determined to_be_confirmed to_be_discussed to_be_continued out_of_scope
            back_?burner>
            wait_<with for until before on>
            <still remains? left leave_it leave_that leave_this keep_it keep_that stays?>_<open unclear pending>
            <can has_to will_have_to should must may>_wait
            let_<it that this them>_<rest sit be>
            put … <off aside on_ice>
            <ask consult tell warn notify inform ping check_with talk_to speak_to wait_for come_to> me … <before
            first if when whenever>
            <before first if when whenever>[^?!]{0,90}\\b<ask consult tell warn notify ping check_with talk_to> <me
            us>
            <haven't hasn't not>_<yet_>?<decided made_up chosen settled agreed figured picked finali[sz]ed>
            <don't_know_yet not_sure_yet not_sure_whether_we no_decision>
            <need want have>_to_<think talk sleep discuss>
            <leave save keep do tackle handle discuss decide worry_about look_at talk_about deal_with> … <later
            afterwards another next_week next_month next_sprint next_time next_quarter next_release after_the
            once_the once_we>
            <later afterwards eventually next_week next_month next_sprint next_quarter next_release>[.!]?$
            <we'll i'll we_will i_will we_can> … <once after when>
            let_me_<think sleep decide>_<on it>
            skip … <for_now today this_time>""",
        "forbid": """
            <don't do_not dont mustn't must_not must_never should_not shouldn't should_never shall_not may_not
            may_never (?<=\\w_)cannot (?<=\\w_)can't>(?<!i_can't)(?<!we_can't)(?<!i_cannot)(?<!we_cannot)(?! <know
            think see remember understand get_it believe recall mind care worry wait seem have_a_clue>\\b)
            not_<allowed permitted supposed authori[sz]ed acceptable an_option welcome tolerated>
            <forbidden prohibited off[-_]limits none_of_your_business no_place_in taboo no-go unacceptable
            out_of_the_question untouchable hands[-_]off>
            <under_no_circumstances on_no_account by_no_means in_no_case no_matter_what not_under_any>
            <refrain abstain desist>_from
            <stay keep steer>_<away clear out>
            keep_your_<hands fingers>
            leave … <alone as_is as_it_is as_they_are untouched unchanged in_place>
            <i we>_<won't will_not don't_want do_not_want wouldn't don't_like don't_need don't_allow don't_accept
            can't_accept never_want do_not_accept>
            (?:^|[,;:.–—]_?|<and but so please you we should must can may will to is are>_)never_(?!<mind been had
            did was saw knew thought \\w+ed>\\b)\\w+
            ^<stop(?=_\\w) quit avoid skip omit no_more without nothing nobody no_one none_of enough_with
            not_a_single>
            <avoid stop>_<\\w+ing the any using all>
            ^no_(?!<idea clue doubt wonder reason rush hurry worries problem need>\\b)\\w+
            no_(?:\\w+_){1,3}<please allowed here at_all whatsoever ever>
            <let's let_us>_<not avoid never skip stop>
            no_need_<to for>_(?!<ask check wait confirm>\\b)\\w+
            <not be>_to_be_\\w+<ed en>
            any_?more""",
        "allow": """
            you_<may might can could>(?! <see imagine tell guess remember find hear>\\b)
            <you're you_are>_<allowed free welcome_to good_to permitted authori[sz]ed>
            you_have_<my our full>? ?<permission approval blessing consent ok okay go green_light access free_hand>
            you_<don't_need don't_have needn't>_<to_>?<ask wait check confirm>
            <feel_free by_all_means go_ahead green_light free_hand at_your_discretion as_you_see_fit as_you_like>
            <as_you_wish up_to_you your_call help_yourself be_my_guest lgtm ship_it no_objections?>
            i_<hereby_>?<allow permit authori[sz]e approve grant give_you trust_you let_you consent don't_mind>
            <i'm i_am we're>_<totally_ perfectly_>?<ok okay fine happy good comfortable>_<with for if to_let>
            <you've_got you_have you_got> … <access permission approval>
            <is are 's be would_be>_<also_ totally_ perfectly_ absolutely_ completely_>?<ok okay fine alright
            all_right allowed permitted acceptable>
            no_need_to_<ask check wait confirm consult>
            <permission permitted allowed approved authori[sz]ed approval>_<to for is_granted granted given>""",
        "decide": """
            <decided agreed settled chose chosen picked opted approved adopted standardi[sz]ed dropped switched
            migrated banned deprecated froze frozen postponed cancell?ed promised committed_to signed_off ruled_out
            voted retired archived finali[sz]ed abandoned discontinued reserved scrapped rejected>(?! <yet if
            whether>\\b)
            <decision final_call final_answer final_choice final_word verdict consensus plan choice winner
            agreement><_here _now>?<_is 's _was : , _remains _stands>(?! <great good nice bad ok fine>\\b)
            <let's let_us>_<go use stick stay keep(?!_going) switch choose pick adopt settle take call make_it drop
            move do_it do_that do_both do_option ship target support leave name standardi[sz]e treat limit say
            assume require only always focus>
            <we i><'ll _will _shall 're_going_to _are_going_to>_<just_ now_ all_ only_ not_ then_ instead_ always_
            still_ keep_>?<go use stick stay keep switch adopt call name drop support ship target make release host
            deploy pay move have need store treat write run do build offer start launch publish require focus put
            be(?!_<back right there happy glad>)>
            <we're we_are i'm i_am>_<going sticking staying keeping switching dropping moving using targeting
            releasing shipping not_going not_doing not_supporting settling standardi[sz]ing>
            <we they it i>_<won't will_not no_longer>
            it_is[.!]?$
            <it's that's it_is that_is>_<settled decided agreed final official a_deal>
            <goes go going>_with
            <let's let_us>_do_(?!<it that this the a some>\\b)\\w+
            <option variant plan proposal design approach solution> <[a-f] \\d one two three>
            the_<first second third fourth last latter former>_<one option variant design approach proposal>
            deal[.!:]
            as_of_<version release v?\\d next now today>
            <stays remains wins>""",
        "prefer": """
            <prefer~ preference favou?rite ideal ideally preferable preferably>
            <i we><'d _would>_rather
            i<'d _would>?_<really_ always_ also_ generally_ usually_ much_ especially_>?<like love enjoy appreciate
            hate dislike favou?r value care_about lean go_for take opt_for choose>(?! to <know ask see_what
            understand work look discuss talk explore hear start try>\\b)
            <can't_stand cannot_stand can't_bear fan_of fond_of keen_on my_taste my_liking my_style suits?_me
            if_possible>
            works?_<best better>_for_<me us>
            <best better nicer easier easiest cleaner nicest>_<if when for_me for_us in_general that_way>
            would_be_<nice nicer better best great good lovely ideal helpful preferable>
            <annoys? bothers? irritates? bugs? pleases? distracts? confuses?>_me
            gets_on_my_nerves""",
        "require": """
            <must shall should ought_to need_to needs_to have_to has_to gotta got_to needs>(?! be <nice fun hard>)
            <required? requires mandatory compulsory obligatory necessary essential crucial vital important>
            <expected supposed>_to
            <is are>_to_<be stay remain go have use>
            <make_sure make_certain be_sure ensure see_to_it take_care be_careful watch_out from_now from_here_on>
            <going_forward in_future in_the_future henceforth as_a_rule as_a_general_rule as_a_principle
            by_default>
            <in_general at_all_times each_time every_time every_single any_?time whenever without_exception>
            ^always
            <stick_to stick_with adhere comply conform keep_in_mind bear_in_mind don't_forget note_that deadline>
            <follow respect>_<the our my this>
            <at_most at_least no_more_than no_less_than no_fewer_than no_later_than maximum minimum due_on due_by>
            <exactly up_to>_<one two three \\d+>
            <belongs? go goes>_<in into under to_the at below next_to behind>
            gets?_<a an its their>
            <i we>_<want need expect insist demand require>_<you the all every~ each it them that this to_see to_be
            to_have to_approve to_review only no any at_least at_most both more less my our>
            <treat assume call_me speak answer_in reply_in respond_in write_in>
            ^<only use keep(?!_going) stay follow call_it name_it>""",
        "report": f"""
            <i we you he she it they this that there who which somebody someone nobody everybody everyone
            everything><'ve
            'd>?_<also_ just_ already_ only_ never_ always_ really_ finally_ still_ all_ then_ once_ even_ both_
            recently_>?<{_EN_PAST} (?!need|feed|speed|embed|exceed|proceed|seed|shared|limited|based)\\w\\w+ed>
            <the my our your his her their a an every each another one some all old last first second
            third>(?:_\\S+){{1,4}}?_<also_ just_ already_ only_ never_ always_ really_ finally_ still_ then_
            once_>?<{_EN_PAST}
            (?<!is_)(?<!are_)(?<!be_)(?<!been_)(?<!the_)(?<!not_)(?<!any_)(?<!all_)(?<!get_)&
            (?<!gets_)(?!need|feed|speed|embed|exceed|proceed|seed|shared|limited|based|named|called|generated)\\w\\w+ed>
            <i we he she they it the_\\w+ my_\\w+><'ve _have _has>_<just_ already_ only_ never_ always_ recently_
            finally_ also_>?<\\w+ed been seen done gone made taken found got had read written run heard come given
            told tried spent>
            <yesterday last_night last_week last_month last_year last_time (?:\\w+_){{1,2}}ago this_morning
            earlier_today just_now the_other_day i_just <must should could would might may>_have_\\w+<ed en ne>
            <has have 've>_been_(?!<deprecated frozen banned approved decided chosen agreed renamed moved replaced
            disabled dropped removed>\\b)\\w+ all_day all_night all_afternoon all_morning all_week had_to>
            ^<just_>?<{_EN_PAST} never_seen never_heard never_tried never_had finished tried started noticed
            checked pushed merged updated fixed moved looked ended worked failed crashed>""",
        "lasting": """
            <never always every each whenever any unless until as_long_as while except without only not no nothing
            nobody both strictly consistently everywhere throughout anywhere wherever beforehand instead_of
            rather_than>
            once_<the you we it they i all>
            (?<!see_)(?<!check_)(?<!know_)(?<!wonder_)(?<!out_)(?<!me_)(?<!ask_)(?<!sure_)(?<!look_)(?<!test_)&
            (?<!verify_)(?<!confirm_)if_(?!there)\\w+
            ^when
            when_<you a an it i we>
            before_<you any each every \\w+ing a commit the>
            after_<you any each every \\w+ing a>
            in_<this the our>_<project repo repository codebase code_base session conversation team company>
            for_<all every each any>
            in_<english german french spanish chinese british american metric utc cents milliseconds seconds
            lower_?case upper_?case plain markdown the_imperative the_present_tense>
            <write put log name store save format place sort mark document report round display send wrap quote
            label prefix title order>_(?:[\\w-]+_){0,3}(?!<this its thus the his yes us as is was has does status
            class process access pass alias analysis>\\b)\\w\\w+s_<in under with as to for at on by below into
            without from like using before after>""",
        "once": f"""
            (?!<i we you he she it they this that the a an all both half most some any no not only if when where
            there here so as and or but because maybe perhaps anything everything nothing is are treat use keep
            consider call name respect follow mind prefer avoid without under after before until with every each in
            on at for from by of to into over through during since than like per behind between about what which
            who how why one two \\w+s \\w+ing>\\b)\\w+_<the this that these those it them him her me a an my your
            our his their>
            <i'd_like i_would_like i_want i_need>_to_(?!<see have keep be avoid use stay>\\b)\\w+
            <can_you_ could_you_ would_you_ will_you_ i'd_like_to_ i'd_like_you_to_ i_want_to_ i_want_you_to_
            i_need_to_ i_need_you_to_ i_would_like_to_ let's_ let_us_ let_me_ we_need_to_ we_have_to_ we_should_
            we_can_ you_can_now_ go_ahead_and_ go_and_ time_to_ i'll_ i_will_ i'm_going_to_>?(?:<quickly briefly
            now please just also then first next automatically>_)*<{_EN_ONCE}>(?!-\\w)(?!_\\w+:)""",
        "remark": f"""
            i_<think guess suppose wonder hope bet doubt feel believe noticed heard see know remember forgot wish
            assume imagine mean>
            <i'm i_am>_<also really actually particularly>_<interested thinking planning looking considering>
            i'll_<definitely probably maybe>
            <here's here_is here_are no_clue no_idea>
            <i'm i_am>_<interested planning considering back curious tired happy glad sure not_sure confused
            impressed excited surprised sorry afraid done ready here hungry late stuck wondering thinking looking
            trying getting seeing about just still having reading waiting learning enjoying starting checking
            off_to so very really pretty a_bit kind_of>
            <could may>_<be have>_(?!\\w+ed\\b)\\w+
            <might maybe perhaps>_\\w+
            <let's let_us>_\\w+
            <:\\( :\\) :\\|>
            \\.\\.\\.$
            <a an the one another>_\\w+_<reports? complains? claims? mentions? asks? writes>
            <one_last one_more>_<comment thing question one>
            <looks seems feels sounds>_like
            <same another>_<problem issue error thing story result bug>
            i_<need could_use want>_<a some more another>_<coffee break drink nap tea snack holiday minute moment
            second>
            <is are 's 're looks? seems? feels? sounds? tastes?>_(?:<{_EN_TEMPER} somewhat already almost too
            now>_)*<great good nice awesome cool perfect amazing wonderful helpful interesting better worse weird
            strange odd annoying fun funny bad slow fast quick ugly beautiful lovely cold warm hot busy quiet loud
            late early easy hard tricky boring exciting impressive clever smart clear obvious right done ready
            green red broken stuck down up back sunny well fine delicious popular crazy huge sad happy tired empty
            full close complete finished over>
            <it this that everything all_tests tests? the_\\w+ the_\\w+_\\w+ my_\\w+>_<still_ now_ finally_ just_
            sometimes_ really_>?<works? fails? crashes hangs compiles passes pass looks? seems? shows? says?
            prints? displays? reports? complains? throws? happens? takes? feels? sounds? helps? rains? snows?>
            <is are 's 're am 'm>_<still_ currently_ now_ just_ already_ also_ slowly_ finally_>?(?!<going using
            running_on targeting moving planning supporting keeping dropping living sharing paying sticking staying
            migrating expecting relying hosting working_in working_from working_for being during>\\b)\\w\\w+ing
            <weather raining snowing sunshine lunch dinner breakfast weekend football movie film concert traffic
            school>
            <today>
            you_<can could may>_<see imagine tell guess find hear>
            i<'ll _will>_be_<back right there>
            my_<cat dog kids? son daughter wife husband train neighbou?r>
            <again finally so_far tonight at_last lately somehow apparently obviously hopefully luckily
            unfortunately anyway good_luck fun_fact>
            there<'s _is _are>_…<errors? bugs? typos? issues? conflicts? problems? warnings? comments? failing fail
            tests?>
            <you're you_are you_were>_<right welcome correct great amazing awesome very>
            <people users folks everyone everybody they he she many most some others>_<always_ often_ really_ just_
            usually_>?<says? thinks? loves? likes? seems? wants? knows? hates? believes? tells? complains?>""",
    },
    "de": {
        "opener": r"""
            \W{0,6}(?:<ok okay ja jo gut also und aber ach_so ach oh hm+ übrigens bitte nun jetzt dann erstmal
            außerdem noch_was noch_etwas ach_so alles_klar nur_zur_info hinweis wichtig zur_info und_noch mal
            merke>[\s,.:;!–—-]{1,4}|<danke super gut prima>[,.:;!–—-]\s{1,3}){0,5}""",
        "question": """
            <was wer wen wem wessen wann wo woher wohin warum wieso weshalb wie_ welche[rsn]?>
            <kannst könntest würdest willst magst hast weißt bist>_du
            <ist sind war hat haben gibt kann können könnte soll sollen sollte darf>_<das es die der ich wir man
            dies diese dein unser>""",
        "reaction": """
            <danke~ vielen_dank herzlichen_dank besten_dank hallo hi hey moin servus guten_<morgen tag abend>
            gute_nacht>
            <tschüss bis_<bald später morgen dann> super toll klasse prima perfekt wunderbar großartig spitze
            genial interessant lustig komisch seltsam merkwürdig haha~ hm+ aha ach_so achso oh wow verstanden
            alles_klar verstehe ich_verstehe kein_problem schon_gut macht_nichts gut_gemacht gern_geschehen genau
            stimmt_?$ nicht_schlecht sehr_gut schön sehr_schön gut klingt_gut keine_ahnung entschuldig~ sorry
            tut_mir_leid mal_sehen mal_schauen weiß_nicht sieht_gut_aus passt_?$ freut_mich schade cool nett_?$
            egal_?$>
            das_<ist sieht klingt war hilft>_<ja_ doch_ wirklich_ echt_ sehr_ aber_ mir_>?<gut super toll schön
            interessant seltsam komisch klasse prima perfekt nett lustig schnell hilfreich sehr sinnvoll>""",
        "correct": """
            <ich_meinte ich_meine_das gemeint_<war ist> ich_habe_mich_<geirrt vertan verschrieben versprochen>
            mein_fehler das_war_falsch das_ist_falsch stimmt_nicht korrektur falsch_verstanden missverstanden
            sondern>
            <falsch veraltet überholt>
            <und ,>_?nicht_(?!<nur mehr>\\b)\\w+
            ^nein,?_\\w+
            ^nicht_<der die das den so in auf>
            <heißt lautet>
            <eigentlich tatsächlich in_wirklichkeit vielmehr>
            <vergiss ignoriere streich nimm>_<was das die den alles meine zurück>
            <gilt brauchst musst müssen gelten> … nicht_mehr
            doch_<nicht lieber besser>
            <ist sind liegt liegen läuft>_(?:\\w+_){0,3}<jetzt nun inzwischen>_\\w+
            statt(?:dessen)?""",
        "defer": """
            <später nachher irgendwann demnächst vorerst fürs_erste zunächst erst_?mal einstweilen
            bis_auf_weiteres>
            <noch_<offen unklar ungeklärt unentschieden nicht_<entschieden klar sicher festgelegt geklärt
            beschlossen fest>> offen_(?:ge)?<lassen blieben> hat_<noch_>?zeit kann_<noch_>?warten muss_warten
            zurückgestellt verschieb~ vertag~ aufgeschoben aussteh~ in_der_schwebe abwarten>
            <warte wartet warten>_<noch_>?<mit bis auf>
            <frag fragt frage sprich informiere>_<mich uns>
            <vorher zuerst erst>_<mich_>?fragen
            <frag~ rücksprache absprach?e absprechen abstimmen bescheid>[^?!]{0,60}<bevor ehe wenn falls vorher
            zuerst>
            <bevor ehe wenn falls>[^?!]{0,80}<frag fragt rücksprache bescheid>
            <ich_weiß wir_wissen>_noch_nicht
            <kümmern reden sprechen entscheiden schauen klären machen>_wir_uns?_?…<danach darum darüber später>
            <lass lassen leg parke?>_…<liegen beiseite ruhen offen>
            komm~_… zurück""",
        "forbid": """
            <darf dürfen darfst dürft soll sollst sollen sollte sollten sollt kannst kann>_(?:\\w+_){0,5}<nicht
            kein~ nie niemals nichts>
            <nichts niemand keine[rsnm]?>_… <darf dürfen soll sollen>
            <auf_keinen_fall keinesfalls unter_keinen_umständen niemals keineswegs um_keinen_preis>
            <verboten untersagt tabu unzulässig finger_weg die_finger_von nichts_verloren nichts_zu_suchen
            hände_weg nicht_erlaubt nicht_gestattet kommt_nicht_in_frage>
            ^<bitte_>?<kein~ nie nicht nichts ohne>_(?!ahnung|problem|sorge|frage|schlecht|übel)\\w+
            bitte_<kein~ nie nicht nichts>
            <ich_will ich_möchte wir_wollen wir_möchten ich_brauche wir_brauchen>_(?:\\w+_){0,4}<kein~ nicht nie
            nichts>
            <vermeide verzichte unterlass~ unterlasse hör_auf lass_das spar_dir>
            (?!keine_ahnung|nicht_schlecht)^\\w+<e t
            en>?_(?!ich\\b|wir\\b|es\\b|er\\b|sie\\b|das\\b|man\\b)(?:[\\w./-]+_){0,6}<nicht nie nichts kein~
            niemals>
            nicht_mehr""",
        "allow": """
            <du_darfst darfst_du_gern~ ihr_dürft sie_dürfen du_kannst ihr_könnt sie_können kannst_du_<ruhig gern~
            jederzeit direkt> ist_erlaubt erlaub~ gestatt~ genehmig~ freigegeben meinetwegen von_mir_aus freie_hand
            ruhig grünes_licht nach_belieben nach_gutdünken habe_nichts_dagegen nichts_dagegen jederzeit
            einverstanden>
            <ist wäre geht>_(?:\\w+_){0,2}<in_ordnung okay ok zulässig erlaubt klar>
            <brauchst musst>_(?:\\w+_){0,3}nicht_(?:\\w+_){0,3}<fragen nachfragen warten>""",
        "decide": """
            <entschieden beschlossen beschluss entscheidung geeinigt festgelegt vereinbart ausgemacht abgemacht
            entschlossen steht_fest es_bleibt_bei endgültig final einig>
            <wir ich>_<bleiben bleibe nehmen nehme verwenden verwende nutzen nutze machen behalten behalte setzen
            setze gehen gehe werden werde wechseln starten unterstützen verzichten lassen liefern veröffentlichen
            streichen benutzen stellen führen>
            es_wird_(?!<kalt warm spät dunkel zeit>)\\w+
            <bleiben nehmen verwenden nutzen machen behalten setzen gehen wechseln starten benutzen lassen
            streichen>_wir
            <die der das>_<erste zweite dritte letzte>_<variante version entwurf lösung option vorschlag>
            <variante option entwurf vorschlag lösung plan>_<[a-f] \\d eins zwei drei>
            <gewählt ausgewählt gestrichen abgeschafft eingefroren verworfen umgestiegen>
            <lass lasst>_uns_(?!<mal_>?<schauen sehen anfangen weitermachen>)\\w+""",
        "prefer": """
            <lieber bevorzug~ am_liebsten vorzugsweise gefäll~ ich_mag ich_liebe ich_hasse ich_hätte_gern~
            hätte_ich_gern~ ich_finde_… <besser schöner angenehmer> besser_<wenn wäre> wäre_<schön besser gut ideal
            toll> idealerweise wenn_möglich nach_möglichkeit mir_ist_wichtig stört_mich nervt_mich liegt_mir
            mir_liegt am_besten ich_wünsche ich_schätze mein_stil reicht_mir kurz_und_knapp>""",
        "require": """
            <muss müssen musst müsst soll sollen sollst sollt sollte sollten sollen immer stets jedes_mal jedesmal
            ab_jetzt ab_sofort von_nun_an künftig zukünftig in_zukunft grundsätzlich prinzipiell ausnahmslos
            nur_noch unbedingt zwingend pflicht erforderlich notwendig verpflichtend vorgeschrieben achte
            stelle_sicher sorge_dafür vergiss_nicht denk_daran denke_daran denk_dran merk_dir beachte höchstens
            mindestens maximal minimal spätestens frist gehör~ standardmäßig>
            <halte halt>_dich_an
            ^<nutze? verwende? benutze? nimm bleibe? halte?>
            ist_zu_\\w+en
            sind_zu_\\w+en
            <vor nach bei>_jede[rmns]
            <ich_will ich_möchte ich_erwarte ich_brauche ich_verlange>""",
        "report": """
            <war waren warst wart hatte hatten wurde wurden musste mussten konnte konnten wollte wollten ging
            gingen kam kamen gab lief liefen brach fiel sah fand stand wusste wussten dachte dachten sagte meinte
            machte dauerte begann schrieb rief blieb hieß nahm passierte klappte funktionierte>
            <hat haben habe hast habt ist sind bin seid wurde>_…\\b(?<!nichts_)<ge\\w+(?:t|en) \\w+ge\\w+(?:t|en)
            \\w+iert be\\w+(?:t|en) ver\\w+(?:t|en) er\\w+(?:t|en) ent\\w+(?:t|en) zer\\w+(?:t|en)>[.!]?$
            <gestern vorgestern vorhin gerade_eben soeben neulich letzte~_<woche nacht jahr mal monat>
            heute_<morgen früh> früher damals vor_<\\w+_>?<stunde~ minute~ tag~ woche~> den_ganzen_<tag nachmittag
            vormittag abend morgen>>""",
        "lasting": """
            <immer nie niemals jede[rsmn]? alle[rsmn]? wenn falls sobald solange sofern bevor ehe bis nur ohne
            außer nicht kein~ nichts stets sonst überall statt anstatt pro jeweils künftig zuerst vorher mindestens
            höchstens maximal unbedingt lieber im_format in_<kleinbuchstaben großbuchstaben> auf_<deutsch englisch
            französisch spanisch chinesisch>>""",
        "once": r"""
            (?!<nutze? verwende? benutze? nimm bleibe? halte? beachte achte über auf in für mit von bei nach vor zu
            an um gegen ohne durch wegen während seit unter hinter neben zwischen wenn falls dass ob weil sobald
            ist sind war alle und oder>\b)\w+_<mir uns die den das dem ein eine einen diese diesen dieses>
            (?:<mal jetzt nun dann bitte noch nochmal gleich kurz schnell>_)*<zeig~ lass_<mich mal die den das uns>
            führe? starte? füge lösch~ schreib~ fass~ erklär~ öffne prüf~ überprüf~ check~ such~ find~
            mache?(?!_\w+_immer) lies gib sag~ erstell~ benenn~ verschieb~ korrigier~ beheb~ reparier~ vergleich~
            übersetz~ zähl~ schau~ sieh guck~ baue? teste? commit~ push~ installier~ aktualisier~ entfern~ änder~
            kopier~ versuch~ probier~ weiter geh~ hol~ lade? rechne? berechne beschreib~ liste nenn~ setz~
            implementier~ merge rebase analysier~ untersuch~ räum~ richte bereite plane entwirf formulier~
            generier~ verbinde? sende? schick~ druck~ sortier~ ergänz~ ersetz~ fahr~ fang~ beginne wiederhol~
            mach_weiter los>""",
        "remark": """
            <ich_<glaube denke vermute hoffe frage_mich meine finde sehe weiß merke> es_<regnet schneit läuft geht
            klappt funktioniert> regnet schneit wetter mittagessen kaffee feierabend wochenende urlaub_war
            glückwunsch leider hoffentlich zum_glück anscheinend offenbar endlich schon_wieder mal_wieder
            immer_noch gerade heute>
            <ist sind sieht klingt wirkt scheint>_(?:<sehr so echt wirklich ziemlich ganz noch etwas zu nicht schon
            immer_noch>_)*<gut schlecht schön toll super interessant langsam schnell komisch seltsam lustig kalt
            warm heiß müde fertig kaputt grün rot leer voll laut ruhig klar richtig nett lecker spannend langweilig
            schwer leicht einfach früh spät da weg bereit>
            da_<ist sind>
            es_gibt_<ein~ noch viele einige zwei drei>
            das_<geht läuft klappt funktioniert dauert reicht hilft stimmt>
            sieht_nach
            <läuft laufen>_…<durch wieder>
            <scheint könnte>_(?:\\w+_){0,3}<sein zu_sein>""",
    },
    "fr": {
        "opener": r"""
            \W{0,6}(?:<ok okay oui ouais bon bien et mais donc alors ah oh eh_bien euh au_fait s'il_te_plaît
            s'il_vous_plaît maintenant puis ensuite d'abord aussi de_plus pour_info note attention
            d'accord>[\s,.:;!–—-]{1,4}|<merci parfait super très_bien>[,.:;!–—-]\s{1,3}){0,5}""",
        "question": """
            <que_<fait font veut dois faut penses> qu'est-ce qui_est quel~ quand_est où_<est se sont trouve>
            pourquoi comment_<ça est vas fait faire on> combien est-ce peux-tu pouvez-vous pourrais-tu
            pourriez-vous veux-tu as-tu sais-tu y_a-t-il>""",
        "reaction": """
            <merci~ bonjour bonsoir salut coucou bonne_<nuit journée soirée idée question> au_revoir à_<bientôt
            demain plus> super génial parfait excellent formidable magnifique bravo intéressant marrant drôle
            bizarre étrange haha~ hm+ ah oh wow compris d'accord_?,?_<compris>? je_<vois comprends>
            pas_de_<problème souci> pas_mal bien_joué bien_vu de_rien exactement exact_?$ c'est_noté entendu
            très_bien_?$ félicitations dommage tant_mieux cool désolé~ pardon excuse~ aucune_idée je_ne_sais_pas_?$
            on_verra_bien>
            c'est_<très_ vraiment_ plutôt_ assez_ trop_ bien_>?<bien bon super génial parfait intéressant bizarre
            étrange drôle cool joli beau rapide mieux utile noté>
            ça_<m'aide marche fonctionne me_va semble a_l'air va>_?<bien beaucoup parfaitement mieux>?[.!]*$""",
        "correct": """
            <je_voulais_dire je_parlais_de je_pensais_à je_me_suis_<trompé~ mal_exprimé~> erreur_de_ma_part
            au_temps_pour_moi autant_pour_moi correction rectification c'est_faux c'est_inexact ce_n'est_pas_ça
            tu_as_mal_compris>
            <faux erroné~ incorrect~ inexact~ obsolète~ périmé~>
            <et mais>_<non_>?pas_\\w+
            , ?<et_>?pas_\\w+
            et_non
            ^non,?_\\w+
            <s'appelle s'appellent s'écrit se_trouve_maintenant se_trouve_désormais>
            <en_fait en_réalité finalement plutôt_que au_lieu>
            <oublie oubliez ignore ignorez>_<ce la le les mon ma mes tout>
            <n'est_plus ne_<s'applique vaut compte>_plus>
            c'est_…_pas""",
        "defer": """
            <plus_tard pas_encore on_verra nous_verrons on_en_reparle~ on_y_reviendra on_reviendra nous_reviendrons
            en_attente en_suspens peut_attendre peuvent_attendre attendra pour_l'instant pour_le_moment
            reste_ouvert~ restent_ouvert~ à_décider à_définir à_voir indécis~ report~ remet~_à repouss~
            mets_de_côté laisse_de_côté de_côté dans_un_second_temps provisoirement une_autre_fois
            la_semaine_prochaine le_mois_prochain>
            <demande demandez consulte consultez préviens prévenez avertis>-<moi nous>
            <attends attendez attendre>_<avant_>?<que de mon ma pour la le>
            <avant si quand>[^?!]{0,80}<demande préviens consulte>-<moi nous>
            <n'ai n'avons n'a n'est>_pas_encore_\\w+
            <je_ne_sais on_ne_sait nous_ne_savons>_pas_<encore si>
            laisse~_…<pour_plus ouvert~ tomber_pour>""",
        "forbid": """
            (?:^|[,;:]_?|<et mais alors donc>_)<ne n'>_?(?:<me te le la les lui y en>_)?\\w+_<pas jamais plus rien
            aucun~ surtout>
            <interdi~ défense_de hors_de_question en_aucun_cas sous_aucun_prétexte jamais_de surtout_pas proscri~
            tabou intouchable~ évite~ arrête~ cesse~ abstiens-toi abstenez-vous non_autorisé~ exclu>
            <je nous on>_ne_<veux voulons veut souhaite souhaitons>_<pas plus aucun~ rien>
            <tu vous on il personne_ne rien_ne>_<ne_>?<dois devez doit faut peux pouvez peut doivent>_<pas jamais
            plus rien surtout>
            (?<!\\w)<plus aucun aucune>_<de_>?\\w+_…<s'il merci>
            ^<pas jamais plus aucune? rien sans>_<de_ d'>?(?!idée|mal|problème|souci|doute)\\w+""",
        "allow": """
            <tu_peux vous_pouvez tu_pourras vous_pourrez tu_as_<le_droit la_permission mon_accord carte_blanche>
            vous_avez_<le_droit la_permission mon_accord carte_blanche> je_<t' te_ vous_>autoris~ autorisé~ permis
            permets permise libre_de n'hésite~_pas ne_me_dérange_pas feu_vert à_ta_guise comme_tu_veux
            comme_vous_voulez pas_d'objection aucune_objection je_suis_d'accord je_te_laisse je_vous_laisse vas-y
            allez-y je_veux_bien_que>
            pas_<besoin la_peine>_de_<me_ m'>?<demander consulter attendre prévenir>
            <c'est il_est>_<ok okay bon possible acceptable permis d'accord>_<de pour si que>
            ça_me_va_<si que de>""",
        "decide": """
            <décid~ choisi~ retenu~ opté tranché~ convenu~ acté~ validé~ adopté~ abandonné~ arrêté_notre décision
            choix_final c'est_<réglé entendu acté officiel> gelé~ reporté~>
            ce_sera
            <on nous>_<reste part garde prend utilise fait va passe abandonne adopte continue restons partons
            gardons prenons utilisons faisons passons abandonnons adoptons ne_fait ne_supporte lance laisse livre
            commence>
            ^<la_première la_deuxième la_seconde le_premier le_deuxième le_second la_dernière l'option la_variante>
            <gardons utilisons prenons restons partons passons>""",
        "prefer": """
            <préfér~ préfèr~ j'aime~ j'adore je_déteste je_n'aime je_trouve_… <plus mieux> plutôt de_préférence
            idéal~ idéalement mieux_<si quand de vaut> ce_serait_<bien mieux> serait_<bien mieux idéal préférable>
            me_<plaît plaisent convient conviennent gêne dérange agace> si_possible je_souhaite~ je_voudrais
            à_mon_goût mon_style de_mon_goût je_suis_fan>""",
        "require": """
            <il_faut il_faudra~ faut dois doit doivent devez devons devra~ devr~ toujours à_chaque_fois chaque_fois
            systématiquement désormais dorénavant à_partir_de_maintenant à_l'avenir en_permanence sans_exception
            obligatoire~ nécessaire~ indispensable~ impérati~ exigé~ requis~ assure-toi assurez-vous veille~_à
            fais_attention faites_attention n'oublie~ souviens-toi rappelle-toi respecte~ au_maximum au_minimum
            au_plus au_moins par_défaut en_général date_limite uniquement seulement exclusivement je_veux_<que du
            des le la les un une tout> j'exige je_tiens_à>
            ^<utilise~ garde~ emploie~ prends prenez reste restez>
            <va vont se_range se_rangent se_met se_mettent>_<dans sous en à>""",
        "report": """
            <ai as a avons avez ont suis es est sommes êtes sont j'ai m'a s'est l'a n'ai n'a n'as n'avons n'ont
            n'est y_a>_(?:<pas jamais déjà encore tout bien beaucoup enfin aussi vite même toujours juste
            tous>_)*(?!<pas plus une? mis requis assis permis>\\b)<\\w+é \\w+ée \\w+és \\w+ées \\w{2,}i \\w{2,}u
            \\w{2,}us \\w{2,}ue pris mis fait dit dû eu été écrit ouvert découvert compris mort>
            <était étais étaient étions avait avais avaient avions fallait pouvait devait voulait faisait allait
            savais savait fut furent fit eut>
            <je j' tu il elle on ça nous c'>_?(?:<ne n' le la l' y en les me m' se s' lui>_?){0,2}\\w{2,}<ais ait
            ions>(?<!mais)(?<!fait)(?<!plait)(?<!erais)(?<!erait)(?<!rais)
            <hier avant-hier ce_matin la_semaine_dernière le_mois_dernier l'an_dernier hier_soir tout_à_l'heure
            il_y_a_<\\w+_>?<minutes? heures? jours? semaines? mois ans?> tout_l'après-midi toute_la_<journée nuit
            matinée semaine> l'autre_jour autrefois>""",
        "lasting": """
            <toujours jamais chaque tout~ tous si s'il quand lorsque lorsqu'~ dès_que tant_que sauf sans seulement
            uniquement que_si pas plus aucun~ rien avant_<de chaque que toute> après_<chaque avoir> au_lieu
            en_<français anglais allemand espagnol chinois> d'abord partout au_format en_minuscules en_majuscules
            à_chaque par_défaut>""",
        "once": r"""
            (?!<utilise~ garde~ emploie~ prends prenez reste restez respecte~ pour dans avec sur sans chez par sous
            vers entre avant après depuis pendant si quand tous toutes tout toute et ou mais que est sont de
            à>\b)\w+_<le la les un une des ce cette ces>
            (?:<maintenant juste vite aussi encore>_)*<lance~ relance~ montre~ affiche~ ouvre~ explique~ lis lisez
            relis donne~ dis dites corrige~ répare~ ajoute~ supprime~ efface~ enlève~ retire~ renomme~ déplace~
            copie~ colle~ crée~ écris écrivez rédige~ résume~ traduis compare~ cherche~ trouve~ vérifie~ regarde~
            teste~ essaie~ essaye~ redémarre~ démarre~ arrête_le installe~ mets_à_jour fais faites refais continue~
            reprends termine~ finis génère~ compte~ liste~ décris exécute~ construis déploie~ pousse~ commite~
            fusionne~ annule~ rétablis analyse~ examine~ calcule~ implémente~ remplace~ nettoie~ envoie~
            télécharge~ connecte~ voyons jette~ va_voir passe_à poursuis configure~ prépare~ modifie~ change~>""",
        "remark": """
            <je_<pense crois suppose me_demande trouve espère vois sais suis_<curieux content fatigué désolé sûr là
            prêt>> il_<pleut neige fait_<beau froid chaud>> météo déjeuner café week-end malheureusement
            heureusement apparemment enfin encore_une_fois à_nouveau on_dirait ça_doit_être c'est_peut-être
            bonne_chance aujourd'hui>
            <est sont semble semblent paraît a_l'air>_(?:<très si trop vraiment assez plutôt un_peu bien encore
            toujours déjà pas>_)*<bien bon bonne mal mauvais joli beau belle super génial intéressant lent lente
            rapide bizarre étrange drôle froid chaud prêt prête fini finie vert verte rouge cassé cassée vide plein
            plus_rapide clair facile difficile magnifique formidable populaire>
            les_tests_<passent échouent>
            ça_<marche fonctionne plante échoue compile passe avance arrive>
            il_y_a_<une? des encore deux trois plusieurs>""",
    },
    "es": {
        "opener": r"""
            \W{0,6}(?:<ok okay sí vale bueno bien y pero pues entonces ah oh eh por_cierto por_favor ahora luego
            después también además nota ojo para_que_sepas de_acuerdo mira oye>[\s,.:;!¡–—-]{1,4}|<gracias perfecto
            genial muy_bien>[,.:;!–—-]\s{1,3}){0,5}""",
        "question": """
            <qué quién~ cuál~ cuándo dónde por_qué cómo_<va vas está están se lo hago> cuánt~ puedes_\\w+me podrías
            sabes_<si qué cómo>>""",
        "reaction": """
            <gracias muchas_gracias mil_gracias hola buenos_días buenas_<tardes noches> adiós hasta_<luego mañana
            pronto> chao genial perfecto estupendo excelente fantástico maravilloso bravo interesante curioso
            gracioso raro jaja~ mm+ ah oh guau vaya entendido vale_?,?_<entendido>? ya_veo lo_entiendo claro_?$
            de_nada sin_problema no_hay_problema no_pasa_nada no_está_mal nada_mal bien_hecho buen_<trabajo punto>
            buena_<idea pregunta> exacto_?$ enhorabuena felicidades qué_<bien raro bueno interesante pena>
            me_alegro tiene_sentido suena_bien perdón perdona~ disculpa~ lo_siento ni_idea no_sé_?$ a_ver_qué>
            <se_ve está es eso_es>_<muy_ bastante_ realmente_ tan_>?<bien bueno genial perfecto interesante raro
            curioso estupendo bonito rápido>""",
        "correct": """
            <me_refería me_refiero quise_decir quería_decir me_equivoqué me_he_equivocado me_confundí me_expresé
            error_mío fallo_mío culpa_mía corrección rectifico eso_no_es (?<!no_)está_mal es_incorrecto es_falso
            lo_has_entendido_mal me_entendiste_mal no_es_así>
            <incorrect~ erróne~ obsolet~ desactualizad~>
            <y pero>_no_\\w+
            , ?no_<el la los las un una en a \\d+ de>
            <sino>
            ^no,_\\w+
            <se_llama se_llaman se_escribe ahora_está ahora_es ahora_vive>
            <en_realidad mejor_dicho más_bien en_vez en_lugar>
            <olvida olvídate olviden ignora>_<lo el la los las mi todo de>
            ya_no_<es está vale aplica hace hay usamos>""",
        "defer": """
            <más_tarde más_adelante todavía_no aún_no por_ahora de_momento por_el_momento dejamos dejémos~
            déjalo_para lo_dejamos pospon~ posterg~ aplaz~ aparc~ pendiente~ en_espera en_el_aire ya_veremos
            veremos sin_decidir por_decidir puede_esperar pueden_esperar esperará queda_abiert~ sigue_abiert~
            abierta_la a_la_espera la_semana_que_viene el_mes_que_viene otro_día en_otro_momento volveremos
            retomaremos hablaremos lo_vemos provisionalmente>
            <pregúntame pregúntanos consúltame consúltalo avísame avísanos consulta_conmigo>
            <espera esperad esperen>_<a_que hasta a con para>
            <no_sabemos no_sé no_hemos no_he>_<todavía aún si decidido>
            <antes si cuando>[^?!]{0,80}<pregúntame avísame consúltame>
            no_<he hemos>_<decidido elegido>""",
        "forbid": """
            ^no_(?:<lo la los las le les me te se nos>_)?\\w+<es as en an éis áis>(?!\\w)(?!_<que>\\b)
            <nunca_\\w+<es as> jamás_\\w+<es as>>
            <prohibid~ prohíbo prohibo bajo_ningún_concepto de_ninguna_manera en_ningún_caso ni_se_te_ocurra
            no_se_puede~ intocable~ tabú fuera_de_límites queda_fuera ni_hablar evita~ deja_de dejad_de abstente
            no_permitid~ nada_de no_está_permitid~ no_se_debe~ no_se_toca>
            no_<quiero queremos quisiera deseo acepto aceptamos me_gusta~ debes debe deben deberías puedes podéis
            pueden tienes_que hay_que hace_falta usamos usaremos necesito>
            ^<nada ningún ninguna sin ni>_(?!idea|mal|problema|duda)\\w+
            <nadie nada>_… <debe puede>""",
        "allow": """
            <puedes podéis puede_usted podrás podéis tienes_<permiso mi_permiso vía_libre carta_blanca luz_verde
            libertad mi_visto> te_<autorizo permito doy dejo> os_<autorizo permito dejo> autoriz~ permitid~
            está_permitid~ eres_libre libremente no_me_importa_<que si> no_me_molesta_que sin_problema_<si puedes>
            adelante_con como_quieras como_prefieras a_tu_criterio luz_verde vía_libre doy_permiso
            no_tengo_inconveniente de_acuerdo_con por_mí_puedes>
            no_<hace_falta es_necesario necesitas tienes>_<que_>?<preguntar~ preguntes consultar~ consultes
            esperar>
            está_bien_<que si>""",
        "decide": """
            <decid~ decisión elegid~ elegimos acordad~ acordamos hemos_quedado quedamos_en nos_quedamos quedó_en
            optad~ optamos queda_<decidid~ acordad~ fijad~ claro_que> está_decidid~ escogid~ descartad~ aprobad~
            definitiv~ resuelto congelad~>
            <vamos_<con a_usar a_mantener a_dejar> usamos usaremos mantenemos seguimos_con apostamos haremos
            cambiamos pasamos_a dejamos_de empezamos lanzamos lanzaremos entonces_<usamos vamos nos hacemos> será
            serán>
            <la_primera la_segunda la_tercera el_primero el_segundo la_opción el_plan la_variante>""",
        "prefer": """
            <prefer~ prefier~ me_<gusta gustan gustaría encanta encantan convence convencen molesta molestan
            va_mejor resulta agrada viene_mejor> lo_ideal idealmente ideal_<para sería> mejor_<si que con sin en>
            sería_<mejor bueno ideal preferible> mi_<estilo gusto preferencia favorit~> odio detesto no_soporto
            no_me_gusta~ si_es_posible a_ser_posible quisiera me_quedo_con>""",
        "require": """
            <siempre cada_vez a_partir_de_ahora de_ahora_en_adelante en_adelante en_lo_sucesivo en_el_futuro
            sin_excepción debe debes deben debemos deberá~ debería~ tiene_que tienes_que tienen_que tenemos_que
            hay_que ha_de han_de obligatori~ necesari~ imprescindible~ requerid~ asegúrate asegúrese procura
            ten_cuidado ten_en_cuenta recuerda no_olvides acuérdate respeta como_máximo como_mínimo al_menos
            a_más_tardar por_defecto en_general fecha_límite únicamente solamente exclusivamente quiero_<que el la
            los las un una todo ver> necesito_<que el la los> exijo>
            ^<usa usad utiliza mantén emplea quédate>
            <va van>_<en dentro bajo a_la>
            ^s[oó]lo""",
        "report": """
            <fue fueron era eran estaba estaban estábamos estuvo estuve estuvimos había habían hubo tuvo tuve
            tuvimos tuvieron hizo hice hicimos hicieron dijo dije dijeron fui fuimos pudo pudimos vino vi vio vimos
            puso quiso supo sabía podía tenía quería iba decía trajo dio di>
            \\w{2,}<ó aron ieron aste iste aba aban ábamos íamos>
            <he has ha hemos han>_(?:<ya nunca siempre también>_)?\\w+<ado ido to cho>
            <se me lo le nos>_\\w+ó
            <ayer anteayer anoche esta_mañana la_semana_pasada el_mes_pasado el_año_pasado hace_<un una dos tres
            \\w+>_<rato hora~ minuto~ día~ semana~ mes~ año~> toda_la_<tarde mañana noche semana> todo_el_día
            el_otro_día antes_era>""",
        "lasting": """
            <siempre nunca jamás cada tod[oa]s? si cuando mientras salvo excepto sin s[oó]lo solamente únicamente
            no ningún~ nada antes_de después_de hasta en_vez en_lugar al_menos como_máximo primero en_formato
            en_minúsculas en_mayúsculas en_<español inglés francés alemán chino> por_defecto>""",
        "once": r"""
            (?!<usa usad utiliza mantén emplea quédate respeta \w+o \w+mos en para con por de sobre sin hasta desde
            entre tras según si cuando tod[oa]s? y que es son está están hay fue a como queda>\b)\w+_<el la los las
            un una este esta>
            (?:<ahora solo también por_favor>_)*<ejecuta~ lanza~ relanza~ muestra~ muéstra~ enseña~ enséña~ abre~
            ábre~ explica~ explíca~ lee~ léeme da_ dame dime di_ corrige~ arregla~ repara~ añade~ agrega~ elimina~
            borra~ quita~ renombra~ mueve~ copia~ pega~ crea~ escribe~ redacta~ resume~ traduce~ compara~ busca~
            encuentra~ comprueba~ verifica~ revisa~ mira~ prueba~ intenta~ reinicia~ inicia~ arranca~ instala~
            actualiza~ haz~ continúa~ sigue~ termina~ acaba~ genera~ cuenta~ lista~ describe~ compila~ despliega~
            sube~ fusiona~ deshaz~ revierte~ analiza~ examina~ calcula~ implementa~ reemplaza~ limpia~ envía~
            descarga~ conecta~ conéctate veamos vamos_a_ver echa~ imprime~ configura~ prepara~ modifica~ cambia~
            repite~ para_ detén~>""",
        "remark": """
            <creo pienso supongo me_pregunto espero veo sé_que imagino estoy_<cansad~ content~ list~ segur~ aquí
            viendo> llueve nieva hace_<frío calor sol> tiempo_hace almuerzo café fin_de_semana por_suerte
            por_desgracia al_parecer por_fin otra_vez de_nuevo ojalá buena_suerte hoy>
            <es está son están parece parecen se_ve suena>_(?:<muy tan bastante demasiado realmente un_poco todavía
            ya no casi>_)*<bien mal buen~ bonit~ genial interesante lent~ rápid~ rar~ curios~ gracios~ frí~
            caliente list~ terminad~ verde roj~ rot~ vací~ llen~ clar~ fácil difícil estupend~ maravillos~ popular>
            <pasan_las fallan_las funciona falla compila tarda va_bien pasa_algo parece puede_ser podría_ser>
            hay_<un una unos dos tres varios muchos>""",
    },
    "zh": {
        "opener": r"""
            (?:<好的(?=[，,。！!\s]) 好(?=[，,。！!\s]) 嗯+ 哦 啊 那么 另外 还有 对了 请 麻烦 顺便说一下 注意 首先
            然后 接下来 现在 而且 但是 不过 所以 是的 行>[\s，,。：:！!、]{0,3}){0,4}""",
        "question": r"""
            .*<吗 呢 么>[？?。]?$
            <什么 为什么 怎么 哪里 哪个 谁 多少 几点 是否>.*""",
        "reaction": """
            <谢谢 多谢 感谢 辛苦 你好 您好 早上好 晚上好 下午好 晚安 再见 拜拜 太好了 太棒了 很好 真棒 真好 不错
            还不错 挺好 厉害 有意思 有趣 哈哈~ 明白 懂了 知道了 收到 了解 原来 没事 没问题 不客气 恭喜 奇怪 好吧
            好的，明白 嗯嗯 哇 看起来<不错 很好 可以> 不好意思 抱歉 对不起 不知道 不清楚 看看会>""",
        "correct": """
            <不对 说错 记错 弄错 搞错 写错 打错 更正 纠正 我说的是 我指的是 我的意思 我是说 应该是 改成 改为 换成
            其实 实际上 而是 不是[^吗？?]{1,30}[，,]?<是 而是> [是为][^，。]{1,30}[，,]_?<而>?不是 不再 忘掉 忽略
            作废 取消 收回 现在<是 叫 改> 过时 误会 叫做?_?\\w+[，,]_?不>""",
        "defer": """
            <以后再 之后再 稍后 晚点 回头再 再说 再讨论 再决定 再议 先放 先不 先别 先等 暂时 暂缓 暂不 推迟 延后
            搁置 待定 未定 不急 还没<定 决定 想好 确定 商量> 没想好 先问 问过我 问一下我 跟我确认 和我确认 先确认
            告诉我一声 等.{1,20}<再 之后 以后> 留到 下<周 个月 次 个版本>再 保留意见 悬而未决 还不<确定 清楚要>>""",
        "forbid": """
            (?<!要)不要(?!紧)
            <(?<![区特级类分识性个告])别(?!的|人|处|名) 不得 不能 不准 不许 禁止 严禁 绝不 绝对不 切勿 请勿 勿 不可
            不应 不想 不希望 不允许 不接受 不必 避免 杜绝 千万 禁用 停止 不用再 不碰 不动 拒绝 没有我的>""",
        "allow": """
            <可以(?!看到) 允许 随便 随意 随时 没关系 不用问 无需问 不必问 同意 批准 授权 放心 尽管 准许 自行 由你
            你看着 自己决定 有权 不介意 没意见 不反对>""",
        "decide": """
            <决定 定下来 定了 已经定 敲定 确定(?!吗) 说好 商定 定为 定在 就用 就按 就选 就这 那就 采用 选用 选择
            统一用 我们用 我们就 还是用 改用 继续用 沿用 不做 不支持 放弃 砍掉 保留 方案[一二三ABCabc\\d]
            第[一二三四\\d]个 最终 一致>""",
        "prefer": """
            <喜欢 偏好 偏向 倾向 更愿意 宁愿 最好 尽量 讨厌 希望 习惯 受不了 反感 爱用 欣赏 更好 比较好 优先 想要
            看重>""",
        "require": """
            <必须 一定要 务必 需要 应该 应当 请写 写[中英]文 得先 都要 总是 一直 始终 永远 每次 每个 每当 每天 凡是
            所有 一律 统一 以后(?!再) 从现在 今后 从今 只能 只用 只要 只有 仅 最多 至多 至少 不超过 不少于 如果
            一旦 要是 之前 请用 记得 记住 别忘 保持 遵守 遵循 按照 确保 保证 注意 严格 截止 默认 放在 放到 写在
            用[中英德法]文 要用 要写 要先 要有 不然 否则 除非 除了>""",
        "report": """
            <昨天 前天 刚才 刚刚 上周 上个月 去年 今天早上 昨晚 之前是 以前 从来没 当时 那天 上次 曾经>
            了<[一二两三四五六七八九十几半\\d] 好久 很久 半天 多次>
            \\w<花 等 用 找 看 试 跑 崩溃 挂 失败 中断 开 去 来 到 说 问 吃 做 发生>了
            过[。！!]?$
            了[。！!]?$""",
        "lasting": """
            <不 (?<![区特级类分识性个告])别 每 总(?!结) 都 只 先 如果 以后 除非 之前 必须 一律 所有 任何 最多 至少>""",
        "once": r"""
            .{0,20}<一下 一遍 一次 看看 试试>
            <帮我 给我 请>?<看 跑 运行 执行 打开 删除 删掉 添加 加 写 解释 总结 翻译 比较 对比 查 找 搜索 列出 重启
            重命名 改名 提交 推送 更新 创建 新建 生成 修 继续 显示 告诉 统计 移动 安装 检查 回滚 撤销 试 描述 实现
            开始 把 将 给 复制 分析 测试 部署 整理 连接 配置 准备 发 下载 上传 计算 画>
            按.{1,12}<排序 排列 分组>
            再.{0,6}<遍 次 一下>""",
        "remark": """
            <我觉得 我想 我猜 我认为 好像 似乎 可能 下雨 天气 午饭 咖啡 周末 今天 终于 又 真<快 慢 好 奇怪> 很<快
            慢 好 奇怪 精彩 有趣 漂亮> 非常<快 慢 好 精彩 有趣> 太<快 慢 好 棒> 正在 看来 挺 有点>""",
    },
}
