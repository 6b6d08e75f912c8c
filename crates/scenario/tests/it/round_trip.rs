//! Parsing and rendering are inverse, and parse errors name the line.

use expect_test::expect;
use scenario::{parse, render};

const SCREEN: &str = "\
policy   preemption=lower-priority fair-sharing=final-share
node     gpu 2x  cpu=16 memory=64Gi nvidia.com/gpu=2 label:zone=a taint:nvidia.com/gpu=present:NoSchedule
node     old     cpu=15500m memory=60G cordoned notready pods=4  # with a comment
pod      logs    on=gpu-1 cpu=500m
pod      head-1  on=gpu-1 leaving cpu=2 of=train-1/0
running  train-1 priority=5  head 1x cpu=2 on=gpu-1  worker 3x nvidia.com/gpu=1 on=gpu-1,gpu-2*2
foreign  train-0             worker 2x cpu=1

pending  train-2 namespace=ml declared:cpu=20 declared:memory=3Gi  head 1x cpu=2 select:zone=a affinity:zone=a|b affinity:!old or field:metadata.name!=x  worker 3x nvidia.com/gpu=1 tolerate:nvidia.com/gpu tolerate:a=b:NoExecute tolerate:
pending  empty   priority=-1 slope=7
nominated urgent priority=9 protected gated started=3 checkpointed=4 victims=train-0,train-1(reclaimed)  main 1x on=gpu-1
stopped  train-2 for=urgent
pod      part    on=gpu-1/3 share:nvidia.com/gpu=250m
running  parts   worker 4x share:nvidia.com/gpu=500m on=gpu-1/0*2,gpu-2/1,gpu-2
";

#[test]
fn a_rendered_world_parses_to_the_same_world() {
    let world = parse(SCREEN).unwrap();
    let text = render(&world);
    expect![[r"
        policy   preemption=lower-priority fair-sharing=final-share
        node     gpu-1  cpu=16 memory=64Gi nvidia.com/gpu=2 label:zone=a taint:nvidia.com/gpu=present:NoSchedule
        node     gpu-2  cpu=16 memory=64Gi nvidia.com/gpu=2 label:zone=a taint:nvidia.com/gpu=present:NoSchedule
        node     old  cpu=15500m memory=60G pods=4 cordoned notready
        pod      head-1  cpu=2 on=gpu-1 of=train-1/0 leaving
        pod      logs  cpu=500m on=gpu-1
        pod      part  share:nvidia.com/gpu=250m on=gpu-1/3
        pending  empty  at=10 priority=-1 slope=7
        pending  train-2  at=9 namespace=ml declared:cpu=20 declared:memory=3Gi  head 1x cpu=2 select:zone=a affinity:zone=a|b affinity:!old or field:metadata.name!=x  worker 3x nvidia.com/gpu=1 tolerate:nvidia.com/gpu tolerate:a=b:NoExecute tolerate:
        running  parts  at=14  worker 4x share:nvidia.com/gpu=500m on=gpu-1/0*2,gpu-2/1,gpu-2
        foreign  train-0  at=7  worker 2x cpu=1
        running  train-1  at=6 priority=5  head 1x cpu=2 on=gpu-1  worker 3x nvidia.com/gpu=1 on=gpu-1,gpu-2*2
        nominated urgent  at=11 priority=9 protected gated started=3 checkpointed=4 victims=train-0,train-1(reclaimed)  main 1x on=gpu-1
        stopped  train-2  for=urgent
    "]]
    .assert_eq(&text);
    assert_eq!(render(&parse(&text).unwrap()), text);
}

#[test]
fn a_parse_error_names_the_line_and_the_word() {
    let cases = [
        (
            "nod a cpu=1",
            "line 1: `nod` is neither node, pod, policy, flavor, quota, queue, stopped, served, clock, pending, running, nominated nor foreign",
        ),
        ("\nnode", "line 2: a name is missing"),
        ("node a cpu", "line 1: `cpu` is not valid here"),
        ("node a cpu=x", "line 1: `cpu=x` has an invalid value"),
        ("node a taint:b=c:Never", "line 1: `taint:b=c:Never` has an invalid value"),
        ("pending a main 1x on=b*c", "line 1: `on=b*c` has an invalid value"),
        ("pod a on=b/c", "line 1: `on=b/c` has an invalid value"),
        (
            "pending a main 1x share:nvidia.com/gpu=1500m",
            "line 1: `share:nvidia.com/gpu=1500m` has an invalid value",
        ),
        ("pending a main 1x share:cpu=500m", "line 1: `share:cpu=500m` has an invalid value"),
        ("pod a of=b", "line 1: `of=b` has an invalid value"),
    ];
    for (text, message) in cases {
        assert_eq!(parse(text).unwrap_err().to_string(), message, "{text}");
    }
}

const QUOTA: &str = "\
node     a       cpu=8
flavor   a100    label:gpu=a100 taint:gpu=a100:NoSchedule tolerate:gpu=a100:NoSchedule tolerate:x topology=rack,host
flavor   v100
quota    team-a  in=research nvidia.com/gpu@a100=8 borrow:nvidia.com/gpu@a100=4 lend:nvidia.com/gpu@a100=2 cpu=64 weight=500m
quota    team-b  in=research weight=2 within=lower-or-newer reclaim=any borrowing=5
quota    team-c  within=lower-priority reclaim=lower-priority borrowing cpu=nodes memory=nodes-2Gi nvidia.com/gpu@a100=nodes+1
queue    vision  quota=team-a strict stopped undeclared=ignore a100,v100:nvidia.com/gpu :cpu,memory
queue    text    when-can-borrow=try when-can-preempt=stop prefer=preemption
pending  p  at=1 queue=vision charge=team-b,team-c  head 1x cpu=1 group=g
running  r  at=2 queue=vision  head 1x cpu=1 on=a flavor:nvidia.com/gpu=v100
";

#[test]
fn rendered_flavors_quota_and_queues_parse_to_the_same() {
    let text = render(&parse(QUOTA).unwrap());
    expect![[r"
        node     a  cpu=8
        flavor   a100  label:gpu=a100 taint:gpu=a100:NoSchedule tolerate:gpu=a100:NoSchedule tolerate:x topology=rack,host
        flavor   v100
        quota    team-a  in=research cpu=64 nvidia.com/gpu@a100=8 borrow:nvidia.com/gpu@a100=4 lend:nvidia.com/gpu@a100=2 weight=500m
        quota    team-b  in=research weight=2 within=lower-or-newer reclaim=any borrowing=5
        quota    team-c  cpu=nodes memory=nodes-2Gi nvidia.com/gpu@a100=nodes+1 within=lower-priority reclaim=lower-priority borrowing
        queue    vision  quota=team-a strict stopped undeclared=ignore a100,v100:nvidia.com/gpu :cpu,memory
        queue    text  when-can-borrow=try when-can-preempt=stop prefer=preemption
        pending  p  at=1 queue=vision charge=team-b,team-c  head 1x cpu=1 group=g
        running  r  at=2 queue=vision  head 1x cpu=1 on=a flavor:nvidia.com/gpu=v100
    "]]
    .assert_eq(&text);
    assert_eq!(render(&parse(&text).unwrap()), text);
}

#[test]
fn rendered_local_queue_usage_parses_to_the_same() {
    let text = render(
        &parse(
            "queue    team   strict half-life=600 interval=60 count:cpu=1000 weight:ann=500m weight:ben=2
             clock    40
             running  r  queue=team from=ann  main 1x cpu=1 on=a
             served   ben  queue=team at=30 cpu=7",
        )
        .unwrap(),
    );
    expect![[r"
        queue    team  strict half-life=600 interval=60 count:cpu=1000 weight:ann=500m weight:ben=2
        running  r  at=3 queue=team from=ann  main 1x cpu=1 on=a
        clock    40
        served   ann  queue=team at=40 cpu=66967008 pods=66967
        served   ben  queue=team at=30 cpu=7
    "]]
    .assert_eq(&text);
    assert_eq!(render(&parse(&text).unwrap()), text);
    assert_eq!(parse("served ann cpu=x").unwrap_err().to_string(), "line 1: `cpu=x` has an invalid value");
    assert_eq!(parse("clock soon").unwrap_err().to_string(), "line 1: `soon` has an invalid value");
}

#[test]
fn rendered_rules_between_pods_parse_to_the_same() {
    let text = "\
node     n  label:zone=a
pod      other  selected:1,2 apart:1=zone port:10.0.0.1:80/TCP on=n
pending  web  at=3  server 2x selected:1 apart:1=zone near:2=rack,zone spread:1=zone:1 spread:2=host:2:min=3:ignore-affinity:honor-taints port:80/TCP
";
    assert_eq!(render(&parse(text).unwrap()), text);
    for word in
        ["selected:x", "apart:1", "near:zone", "spread:1=zone", "spread:1=zone:1:x", "port:80", "port:x/TCP"]
    {
        let error = parse(&format!("pod p {word}")).unwrap_err();
        assert_eq!(error.to_string(), format!("line 1: `{word}` has an invalid value"));
    }
}
