"""The server's face to operators: health, reflection, metrics, signals."""

import json
import signal
import urllib.error
import urllib.request

import grpc
import pytest

SERVING = b"\x08\x01"  # HealthCheckResponse{status: SERVING}


def health(channel, service, method="Check"):
    """grpc.health.v1 without its stubs: HealthCheckRequest has one string field, number 1."""
    name = service.encode()
    request = b"\x0a" + bytes([len(name)]) + name if name else b""
    path = f"/grpc.health.v1.Health/{method}"
    raw = dict(request_serializer=lambda x: x, response_deserializer=lambda x: x)
    if method == "Watch":
        return channel.unary_stream(path, **raw)(request, timeout=10)
    return channel.unary_unary(path, **raw)(request, timeout=10)


def http(address, path):
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize("service", ["", "tenon.v1.ContractionService",
                                     "tenon.v1.MeasurementService", "tenon.v1.DatasetService",
                                     "tenon.v1.ProviderService"])
def test_health_check_and_watch(server, service):
    assert health(server.channel, service) == SERVING
    watch = health(server.channel, service, "Watch")
    assert next(iter(watch)) == SERVING
    watch.cancel()


def test_unknown_service_has_no_health(server):
    with pytest.raises(grpc.RpcError) as caught:
        health(server.channel, "tenon.v1.Nothing")
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


def test_reflection_lists_the_services(server):
    # ServerReflectionRequest{list_services: ""} (field 7); names appear verbatim in the answer.
    call = server.channel.stream_stream(
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        request_serializer=lambda x: x, response_deserializer=lambda x: x)
    answer = next(iter(call(iter([b"\x3a\x00"]), timeout=10)))
    for name in ("ContractionService", "MeasurementService", "DatasetService", "ProviderService"):
        assert f"tenon.v1.{name}".encode() in answer


def test_metrics_and_probes(server):
    assert http(server.metrics, "/livez")[0] == 200
    assert http(server.metrics, "/readyz")[0] == 200
    status, text = http(server.metrics, "/metrics")
    assert status == 200
    # Kept by tests/golden/metrics.txt; here only that a scraper of another language gets them.
    for family in ("tenon_build_info", "tenon_requests_total", "tenon_memory_budget_bytes",
                   "tenon_process_resident_bytes"):
        assert f"\n{family}" in "\n" + text, family


def test_server_info_tells_limits(stubs, server):
    stub = stubs.provider_pb2_grpc.ProviderServiceStub(server.channel)
    info = stub.GetServerInfo(stubs.provider_pb2.GetServerInfoRequest(), timeout=10)
    assert info.limits.max_chunk_bytes <= 4 << 20
    providers = stub.ListProviders(stubs.provider_pb2.ListProvidersRequest(), timeout=10).providers
    by_name = {p.name: p for p in providers}
    assert {"cpu", "reference", "cuda:0"} <= set(by_name)
    assert by_name["cpu"].state == stubs.provider_pb2.PROVIDER_STATE_READY
    assert by_name["cuda:0"].state == stubs.provider_pb2.PROVIDER_STATE_ABSENT


def test_the_log_has_one_line_for_each_call_with_its_request(stubs, start_server):
    pb2 = stubs.contraction_pb2
    server = start_server("--log_format=json")
    server.wait_until_ready(stubs)
    contract = stubs.contraction_pb2_grpc.ContractionServiceStub(server.channel).Contract
    good = pb2.ContractHeader(request_id="good\nid")
    operand = good.network.operands.add(indices=["a"], inline_data=bytes(16))
    operand.spec.dtype = stubs.tensor_pb2.DATA_TYPE_FLOAT64
    operand.spec.shape.append(2)
    list(contract(iter([pb2.ContractRequest(header=good)]), timeout=30))
    bad = pb2.ContractHeader(request_id="bad")
    with pytest.raises(grpc.RpcError):
        list(contract(iter([pb2.ContractRequest(header=bad)]), timeout=30))
    assert server.stop() == 0, server.text()
    lines = [json.loads(line) for line in server.text().splitlines()]
    requests = [line for line in lines if line["event"] == "request"]
    assert all({"method", "request_id", "seconds", "reason"} <= set(line) for line in requests)
    by_id = {line["request_id"]: line for line in requests if "Contract" in line["method"]}
    assert by_id["good\nid"]["reason"] == "OK"
    assert by_id["bad"]["reason"] != "OK" and by_id["bad"]["message"]
    assert len([line for line in requests if "Contract" in line["method"]]) == 2


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGINT],
                                     [signal.SIGTERM, signal.SIGTERM]])
def test_stops_cleanly_on_signals(stubs, start_server, signals):
    server = start_server()
    server.wait_until_ready(stubs)
    for number in signals:
        server.process.send_signal(number)
    assert server.process.wait(timeout=60) == 0, server.text()


def test_lame_duck_still_serves_but_is_not_ready(stubs, start_server):
    server = start_server("--drain_delay=5s")
    server.wait_until_ready(stubs)
    watch = iter(health(server.channel, "", "Watch"))
    assert next(watch) == SERVING
    server.process.send_signal(signal.SIGTERM)
    assert next(watch) != SERVING  # pushed, so nothing here waits for luck
    assert http(server.metrics, "/readyz")[0] == 503
    assert http(server.metrics, "/livez")[0] == 200
    stub = stubs.provider_pb2_grpc.ProviderServiceStub(server.channel)
    stub.GetServerInfo(stubs.provider_pb2.GetServerInfoRequest(), timeout=10)
    server.process.send_signal(signal.SIGTERM)  # the second one skips the wait
    assert server.process.wait(timeout=60) == 0, server.text()


@pytest.mark.parametrize("flags,word", [(["--threads=-3"], "threads"),
                                        (["--memory_budget=lots"], "memory_budget"),
                                        (["--nonsense=1"], "nonsense")])
def test_bad_settings_are_named(tmp_path, flags, word):
    import subprocess
    from conftest import BUILD
    result = subprocess.run([str(BUILD / "server" / "tenond"), *flags], capture_output=True,
                            timeout=60)
    assert result.returncode in (1, 2)
    assert word in result.stderr.decode()
