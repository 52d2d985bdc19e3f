# A file in results/ that no other rule makes is an error, which names the nearest one.  Included last.
rule unknown:
    input:
        BRIDGE.views.unknown,
    output:
        "results/{path}",
    wildcard_constraints:
        path=BRIDGE.views.not_made(),
    localrule: True
    message:
        "Never run: there is no such result"
